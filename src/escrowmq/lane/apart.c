/* Takes requests apart: whether one is of a known shape, and what is special about it. All of it
   was written by strangers: no length is used before it is known to lie within what was read. */

#include "apart.h"

/* What is the same in either form. */
static int read_meaning(PyObject *tuple, Py_ssize_t first, Shape *shape)
{
    int64_t number[8];
    if (span_at(tuple, 2, &shape->topic) < 0)
        return -1;
    for (int nth = 0; nth < 8; nth++)
        if (number_at(tuple, first + nth, INT32_MIN, INT32_MAX, &number[nth]) < 0)
            return -1;
    shape->flag = (int32_t)number[0];
    shape->sys_flag = (int32_t)number[1];
    shape->half_sys_flag = (int32_t)number[2];
    shape->reconsume_times = (int32_t)number[3];
    shape->is_one_way = number[4] != 0;
    shape->may_be_plain = number[5] != 0;
    shape->may_be_half = number[6] != 0;
    shape->is_batch = number[7] != 0;
    return 0;
}

static int read_shape(PyObject *tuple, Shape *shape)
{
    int64_t number[4];
    PyObject *first = PyTuple_GetItem(tuple, 0), *second = PyTuple_GetItem(tuple, 1);
    if (first == NULL || second == NULL)
        return -1;
    shape->is_json = PyTuple_Check(first);
    if (shape->is_json)
        return read_json_shape(first, second, shape) < 0 ? -1 : read_meaning(tuple, 3, shape);
    if (span_of(first, &shape->front) < 0 || span_of(second, &shape->suffix) < 0 ||
        read_meaning(tuple, 7, shape) < 0)
        return -1;
    for (int nth = 0; nth < 4; nth++)
        if (number_at(tuple, 3 + nth, INT32_MIN, INT32_MAX, &number[nth]) < 0)
            return -1;
    shape->queue_at = (Py_ssize_t)number[0];
    shape->queue_end = (Py_ssize_t)number[1];
    shape->born_at = (Py_ssize_t)number[2];
    shape->born_end = (Py_ssize_t)number[3];
    if (shape->queue_at < FIXED_SIZE || shape->queue_end <= shape->queue_at ||
        shape->born_at < shape->queue_end || shape->born_end <= shape->born_at ||
        shape->front.size - 4 < shape->born_end) {
        PyErr_SetString(PyExc_ValueError, "a shape's places are out of order");
        return -1;
    }
    return 0;
}

void known_begin(Known *known, PyObject *shapes, PyObject *plans)
{
    known->shapes = shapes;
    known->plans = plans;
    known->shapes_count = known->last_shape = known->plans_count = known->next_plan = 0;
    known->texts = (Pile){NULL, 0, 0};
}

int known_shapes(Known *known)
{
    Py_ssize_t count = PyList_Size(known->shapes);
    if (count < 0)
        return -1;
    known->shapes_count = count < SHAPES_MAX ? (int)count : SHAPES_MAX;
    memset(known->is_read, 0, sizeof known->is_read);
    return 0;
}

/* One of them, which is read when it is tried: most requests are of the first or the last one. */
static const Shape *shape_at(Known *known, int nth)
{
    if (!known->is_read[nth]) {
        PyObject *tuple = PyList_GetItem(known->shapes, nth);
        if (tuple == NULL || read_shape(tuple, &known->shape[nth]) < 0)
            return NULL;
        known->is_read[nth] = 1;
    }
    return &known->shape[nth];
}

void known_forget(Known *known)
{
    for (int nth = 0; nth < known->plans_count; nth++)
        Py_CLEAR(known->plan[nth].names);
    known->plans_count = 0;
    PyMem_Free(known->texts.bytes);
    known->texts.bytes = NULL;
}

/* -- the header -------------------------------------------------------------------------------- */

/* Whether a header, which is known to be whole, is of a shape; what differs, if it is. */
static int matches(const Shape *shape, const uint8_t *frame, Py_ssize_t header_end, Message *found)
{
    Span front = shape->front;
    if (front.size > header_end || header_end - FIXED_SIZE != (Py_ssize_t)read_32(frame + 25) ||
        !is_same(frame, front, 8, OPAQUE_AT) || !is_same(frame, front, BEHIND_OPAQUE, 25) ||
        !is_same(frame, front, FIXED_SIZE, shape->queue_at) ||
        !is_same(frame, front, shape->queue_end, shape->born_at) ||
        !is_same(frame, front, shape->born_end, front.size - 4))
        return 0;
    uint32_t size = read_32(frame + front.size - 4);
    if (size > header_end - front.size)
        return 0;
    found->properties = (Span){frame + front.size, (Py_ssize_t)size};
    Span rest = {frame + front.size + size, header_end - front.size - (Py_ssize_t)size};
    if (!span_equals(rest, shape->suffix))
        return 0;
    found->shape = shape;
    found->opaque = (Span){frame + OPAQUE_AT, 4};
    found->queue = (Span){frame + shape->queue_at, shape->queue_end - shape->queue_at};
    found->born = (Span){frame + shape->born_at, shape->born_end - shape->born_at};
    return 1;
}

/* The shape of a header, which is known to be whole: the last one, or another. */
static int find_shape(Known *known, const uint8_t *frame, Py_ssize_t header_end, int is_json,
                      Message *found)
{
    Span header = {frame + 8, header_end - 8};
    for (int turn = 0; turn < known->shapes_count; turn++) {
        int nth = (known->last_shape + turn) % known->shapes_count;
        const Shape *shape = shape_at(known, nth);
        if (shape == NULL)
            return -1;
        if (shape->is_json != is_json)
            continue;
        int is_alike = is_json ? matches_json(shape, header, &known->texts, found)
                               : matches(shape, frame, header_end, found);
        if (is_alike != 0) {
            known->last_shape = nth;
            return is_alike;
        }
    }
    return 0;
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

int take_apart(Known *known, const uint8_t *at, const uint8_t *end, int64_t size_max,
               Message *found)
{
    Py_ssize_t header_end, size;
    int is_json = end - at > 4 && at[4] == 0;
    if (!(is_json ? is_json_frame : is_frame)(at, end, size_max, &header_end, &size))
        return 0;
    int is_alike = find_shape(known, at, header_end, is_json, found);
    if (is_alike <= 0)
        return is_alike;
    if (!is_number(found->queue, &found->queue_id) || !is_number(found->born, &found->born_ms))
        return 0;
    found->end = at + size;
    found->body = (Span){at + header_end, found->end - at - header_end};
    return found->shape->is_batch ? 1 : read_properties(known, found);
}
