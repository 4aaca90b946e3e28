/* Lays out what a stretch of send requests has stored and answered, as broker/short_puts does for
   each alone. It changes nothing that it was given: either all of a message is in what it returns,
   or the message was not begun, and is served by whoever called this. */

#include "keys.h"
#include "record.h"
#include "work.h"


/* -- a message --------------------------------------------------------------------------------- */

int add_unit(Tail *tail, int64_t log_offset, int64_t size, int64_t tags_code)
{
    if (tail->units == NULL && (tail->units = PyByteArray_FromStringAndSize(NULL, 0)) == NULL)
        return -1;
    uint8_t *at = array_room(tail->units, UNIT_SIZE);
    if (at == NULL)
        return -1;
    write_64(write_32(write_64(at, log_offset), (uint32_t)size), tags_code);
    tail->queue_offset++;
    return 0;
}

static int add_key(Work *work, const Tail *tail, Span key, int64_t log_offset)
{
    return add_index_key(work->keys, tail->prefix, key, log_offset, work->stored_ms);
}

int add_keys(Work *work, const Tail *tail, const Message *message, int64_t log_offset)
{
    if (add_key(work, tail, message->value[message->plan->key], log_offset) < 0)
        return -1;
    for (int nth = 0; nth < message->keys_count; nth++)
        if (add_key(work, tail, message->key[nth], log_offset) < 0)
            return -1;
    return 0;
}

static uint8_t *write_properties(uint8_t *at, const Work *work, const Message *message,
                                 const Place *half_place)
{
    at = write_span(at, message->properties);
    if (!message->has_last_separator)
        *at++ = 2;
    at = write_span(at, work->suffix);
    if (half_place != NULL) {
        at = write_span(at, work->half_mark);
        at = write_span(at, message->value[message->plan->key]);
        *at++ = 2;
        at = write_span(at, half_place->half_place);
    }
    return at;
}

static int64_t properties_size(const Work *work, const Message *message, const Place *half_place)
{
    int64_t size = message->properties.size + !message->has_last_separator + work->suffix.size;
    if (half_place != NULL)
        size += work->half_mark.size + message->value[message->plan->key].size + 1 +
                half_place->half_place.size;
    return size;
}

int64_t add_record(Work *work, const Tail *tail, const Message *message, const Place *half_place)
{
    int64_t size_of_properties = properties_size(work, message, half_place);
    int64_t size = HEAD_SIZE + message->body.size + tail->topic.size + 2 + size_of_properties;
    const Shape *shape = message->shape;
    if (message->body.size < 1 || message->body.size > work->body_size_max ||
        size_of_properties > work->properties_size_max || size > work->room_end - work->log_end ||
        size > INT32_MAX)
        return 0;
    uint8_t *at = pile_room(&work->records, (Py_ssize_t)size);
    if (at == NULL)
        return -1;
    at = write_32(at, (uint32_t)size);
    at = write_32(at, tail->magic);
    at = write_32(at, body_crc(message->body));
    at = write_32(at, (uint32_t)tail->queue_id);
    at = write_32(at, (uint32_t)shape->flag);
    at = write_64(at, tail->queue_offset);
    at = write_64(at, work->log_end);
    at = write_32(at, (uint32_t)(half_place == NULL ? shape->sys_flag : shape->half_sys_flag));
    at = write_64(at, message->born_ms);
    at = write_span(at, work->born_host);
    at = write_64(at, work->stored_ms);
    at = write_span(at, work->store_host);
    at = write_32(at, (uint32_t)shape->reconsume_times);
    at = write_64(at, 0); /* it commits no half */
    at = write_32(at, (uint32_t)message->body.size);
    at = write_span(at, message->body);
    at = write_span(at, tail->topic);
    at = write_16(at, (uint32_t)size_of_properties);
    at = write_properties(at, work, message, half_place);
    work->records.size += (Py_ssize_t)size;
    assert(at == work->records.bytes + work->records.size);
    return size;
}

/* -- halves ------------------------------------------------------------------------------------ */

int is_true(Span text)
{
    static const char word[] = "true";
    if (text.size != 4)
        return 0;
    for (int nth = 0; nth < 4; nth++)
        if ((text.at[nth] | 0x20) != word[nth])
            return 0;
    return 1;
}

/* Whether a half may be put without being asked more, and its group. */
static int may_be_half(Work *work, const Message *message, PyObject **group)
{
    const Plan *plan = message->plan;
    if (!work->has_half_tail || !message->shape->may_be_half || plan->group < 0 ||
        work->halves_count >= work->halves_max || !is_true(message->value[plan->is_half]))
        return 0;
    Span name = message->value[plan->group];
    *group = PyUnicode_DecodeASCII((const char *)name.at, name.size, NULL);
    if (*group == NULL)
        return -1;
    int is_known = PySet_Contains(work->groups, *group);
    if (is_known <= 0)
        Py_CLEAR(*group);
    return is_known;
}

/* The values of a txn/plain_halves.PlainHalf, in the order of its fields. */
static int add_half(Work *work, const Place *place, const Message *message, PyObject *group,
                    int64_t log_offset, int64_t size, int64_t tags_code)
{
    Span key = message->value[message->plan->key];
    int64_t size_stored = properties_size(work, message, place);
    const uint8_t *stored = work->records.bytes + work->records.size - size_stored;
    PyObject *keys = tuple_of(message->key, message->keys_count);
    if (keys == NULL)
        return -1;
    PyObject *half = Py_BuildValue(
        "(LLLOOOLy#Ny#y#LiiLOOi)", (long long)work->half_tail.queue_offset, (long long)log_offset,
        (long long)size, work->stored_ms_given, group, place->topic, (long long)place->queue_id,
        (const char *)key.at, key.size, keys, (const char *)stored, (Py_ssize_t)size_stored,
        (const char *)message->body.at, message->body.size, (long long)tags_code,
        (int)message->shape->flag, (int)message->shape->half_sys_flag,
        (long long)message->born_ms, work->born_host_given, work->store_host_given,
        (int)message->shape->reconsume_times);
    int done = half == NULL ? -1 : PyList_Append(work->halves, half);
    Py_XDECREF(half);
    work->halves_count++;
    return done;
}

/* -- all of it --------------------------------------------------------------------------------- */

/* Whatever follows from a message that goes to a tail; as take_apart returns. */
static int put(Work *work, Place *place, Tail *tail, const Message *message, PyObject *group)
{
    int64_t code = tags_code_of(message);
    int64_t log_offset = work->log_end, queue_offset = tail->queue_offset;
    int64_t size = add_record(work, tail, message, group == NULL ? NULL : place);
    if (size <= 0)
        return (int)size;
    if (place->sizes == NULL && (place->sizes = PyList_New(0)) == NULL)
        return -1;
    if ((group != NULL && add_half(work, place, message, group, log_offset, size, code) < 0) ||
        append_number(place->sizes, size) < 0 || add_unit(tail, log_offset, size, code) < 0 ||
        add_keys(work, tail, message, log_offset) < 0)
        return -1;
    work->log_end += size;
    work->count++;
    if (message->shape->is_one_way) {
        work->one_way_count++;
        return 1;
    }
    Py_ssize_t units_size = PyByteArray_Size(tail->units);
    Sent sent = {message->opaque, message->value[message->plan->key],
                 (const uint8_t *)PyByteArray_AsString(tail->units) + units_size - UNIT_SIZE, 1,
                 queue_offset, message->shape->is_json};
    return add_reply(work, place, &sent) < 0 ? -1 : 1;
}

static int serve(Work *work, Message *message)
{
    Place *place = NULL;
    PyObject *group = NULL;
    int is_batch = message->shape->is_batch;
    int is_put = is_batch ? 1 : find_keys(message, (int)work->keys_max);
    if (is_put > 0)
        is_put = work_place(work, message, &place);
    if (is_put <= 0)
        return is_put;
    if (is_batch)
        return put_batch(work, place, message);
    if (!is_sayable(message->shape, message->value[message->plan->key]))
        return 0;
    if (message->plan->is_half < 0) {
        if (!place->has_tail || !message->shape->may_be_plain)
            return 0;
        return put(work, place, &place->tail, message, NULL);
    }
    is_put = may_be_half(work, message, &group);
    if (is_put > 0)
        is_put = put(work, place, &work->half_tail, message, group);
    Py_XDECREF(group);
    return is_put;
}

int add_pair(PyObject *list, PyObject *one, PyObject *other)
{
    if (other == NULL)
        return 0;
    PyObject *pair = PyTuple_Pack(2, one, other);
    int done = pair == NULL ? -1 : PyList_Append(list, pair);
    Py_XDECREF(pair);
    return done;
}

static PyObject *answer(Work *work, Py_ssize_t at)
{
    PyObject *tails = PyList_New(0), *sent = PyList_New(0), *found = NULL;
    int failed = tails == NULL || sent == NULL;
    for (int nth = 0; !failed && nth < work->places_count; nth++) {
        Place *place = &work->place[nth];
        failed = add_pair(sent, place->target, place->sizes) < 0 ||
                 add_pair(tails, place->tail.tail, place->tail.units) < 0;
    }
    if (work->batches == NULL)
        failed |= (work->batches = PyList_New(0)) == NULL;
    if (!failed && add_pair(tails, work->half_tail.tail, work->half_tail.units) == 0)
        found = Py_BuildValue("(nNNOOOOOLL)", at, bytes_of_pile(&work->records),
                              bytes_of_pile(&work->replies), tails, sent, work->keys,
                              work->halves, work->batches, (long long)work->count,
                              (long long)work->one_way_count);
    Py_XDECREF(tails);
    Py_XDECREF(sent);
    return found;
}

const char lay_out_sends_doc[] =
    "lay_out_sends(data, at, size_max, shapes, plans, places, moment)\n\n"
    "See lane/native.py.";

PyObject *lay_out_sends(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Work work;
    Message message;
    Span data;
    Py_ssize_t at, begin;
    PyObject *found = NULL;
    int is_put = 0;
    if (count != 7 || !PyList_Check(args[3]) || !PyDict_Check(args[4]) || !PyDict_Check(args[5])) {
        PyErr_SetString(PyExc_TypeError, "data, at, size_max, shapes, plans, places, moment");
        return NULL;
    }
    if (span_of(args[0], &data) < 0)
        return NULL;
    at = begin = PyLong_AsSsize_t(args[1]);
    int64_t size_max = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred())
        return NULL;
    if (at < 0 || at > data.size) {
        PyErr_SetString(PyExc_ValueError, "a place beyond the data");
        return NULL;
    }
    const uint8_t *bytes = data.at, *end = bytes + data.size;
    if (work_begin(&work, args[3], args[4], args[5], args[6]) < 0)
        is_put = -1;
    while (is_put >= 0) {
        is_put = take_apart(&work.known, bytes + at, end, size_max, &message);
        if (is_put > 0)
            is_put = serve(&work, &message);
        if (is_put <= 0)
            break;
        at = message.end - bytes;
    }
    if (is_put == 0)
        found = at > begin ? answer(&work, at) : Py_NewRef(Py_None);
    work_forget(&work);
    return found;
}
