/* Takes send requests apart: whether what is special about one may be. All of it was written by
   strangers: no length is used before it is known to lie within what was read. */

#include "apart.h"

void known_begin(Known *known, PyObject *plans)
{
    known->plans = plans;
    known->plans_count = known->next_plan = 0;
}

void known_forget(Known *known)
{
    for (int nth = 0; nth < known->plans_count; nth++)
        Py_CLEAR(known->plan[nth].names);
    known->plans_count = 0;
}

/* -- the properties ---------------------------------------------------------------------------- */

/* Names and values in turn; none of them is empty, and all of it is ASCII. */
static int split(Message *message)
{
    const uint8_t *at = message->properties.at, *end = at + message->properties.size;
    message->count = 0;
    message->has_last_separator = end > at && end[-1] == 2;
    if (!is_ascii(message->properties))
        return 0;
    while (at < end) {
        const uint8_t *stop = memchr(at, 2, (size_t)(end - at));
        if (stop == NULL)
            stop = end;
        const uint8_t *mark = memchr(at, 1, (size_t)(stop - at));
        if (mark == NULL || mark == at || mark + 1 == stop || message->count == NAMES_MAX ||
            memchr(mark + 1, 1, (size_t)(stop - mark - 1)) != NULL)
            return 0;
        message->name[message->count] = (Span){at, mark - at};
        message->value[message->count] = (Span){mark + 1, stop - mark - 1};
        message->count++;
        at = stop < end ? stop + 1 : end;
    }
    return message->count > 0;
}

static int has_names(const Plan *plan, const Message *message)
{
    if (plan->count != message->count)
        return 0;
    for (int nth = 0; nth < plan->count; nth++)
        if (!span_equals(plan->name[nth], message->name[nth]))
            return 0;
    return 1;
}

/* The plan for names that are a tuple of bytes, whose reference it takes over when it is 1. */
static int read_plan(PyObject *names, PyObject *tuple, Plan *plan)
{
    int *const wanted[5] = {&plan->key, &plan->tags, &plan->keys, &plan->is_half, &plan->group};
    plan->count = (int)PyTuple_Size(names);
    for (int nth = 0; nth < plan->count; nth++)
        if (span_at(names, nth, &plan->name[nth]) < 0)
            return -1;
    for (int nth = 0; nth < 5; nth++) {
        int64_t place; /* among names and values in turn */
        if (number_at(tuple, 1 + nth, -1, 2 * plan->count - 1, &place) < 0)
            return -1;
        *wanted[nth] = place < 0 ? -1 : (int)(place / 2);
    }
    if (plan->key < 0) {
        PyErr_SetString(PyExc_ValueError, "a plan without a unique key");
        return -1;
    }
    plan->names = names;
    return 1;
}

static int find_plan(Known *known, Message *message)
{
    for (int nth = 0; nth < known->plans_count; nth++)
        if (has_names(&known->plan[nth], message)) {
            message->plan = &known->plan[nth];
            return 1;
        }
    PyObject *names = tuple_of(message->name, message->count);
    if (names == NULL)
        return -1;
    PyObject *tuple = PyDict_GetItemWithError(known->plans, names);
    if (tuple == NULL || tuple == Py_None) {
        Py_DECREF(names);
        return PyErr_Occurred() ? -1 : 0;
    }
    Plan found;
    if (read_plan(names, tuple, &found) < 0) {
        Py_DECREF(names);
        return -1;
    }
    Plan *plan = &known->plan[known->next_plan];
    if (known->next_plan < known->plans_count)
        Py_DECREF(plan->names);
    else
        known->plans_count++;
    known->next_plan = (known->next_plan + 1) % PLANS_MAX;
    *plan = found;
    message->plan = plan;
    return 1;
}

int read_properties(Known *known, Message *message)
{
    return split(message) ? find_plan(known, message) : 0;
}

int find_keys(Message *message, int keys_max)
{
    message->keys_count = 0;
    if (message->plan->keys < 0)
        return 1;
    Span keys = message->value[message->plan->keys];
    const uint8_t *at = keys.at, *end = keys.at + keys.size;
    while (at < end) {
        const uint8_t *stop = memchr(at, ' ', (size_t)(end - at));
        if (stop == NULL)
            stop = end;
        if (stop > at) {
            if (message->keys_count == keys_max || message->keys_count == KEYS_MAX)
                return 0;
            message->key[message->keys_count++] = (Span){at, stop - at};
        }
        at = stop < end ? stop + 1 : end;
    }
    return 1;
}

/* -- all of it --------------------------------------------------------------------------------- */

int take_apart(Known *known, Frames *frames, Message *found)
{
    Request request;
    int64_t queue_id;
    int is_alike = next_request(frames, &request);
    if (is_alike <= 0)
        return is_alike;
    found->shape = request.shape;
    found->end = request.end;
    found->body = request.body;
    found->opaque = request.value[OPAQUE];
    found->queue = request.value[QUEUE];
    found->properties = request.value[PROPERTIES];
    if (!is_number(found->queue, &queue_id) || !is_number(request.value[BORN], &found->born_ms) ||
        !is_ascii(request.value[SIGNATURE]))
        return 0;
    return found->shape->is_batch ? 1 : read_properties(known, found);
}
