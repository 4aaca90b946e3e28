/* Lays out what a stretch of send requests has stored and answered. It changes nothing that it was
   given: either all of a message is in what it returns, or the message was not begun, and takes the
   general path. */

#include "work.h"

/* -- replies ----------------------------------------------------------------------------------- */

#define ID_SIZE (2 * HEX_SIZE)

/* Where messages are, as their answer says it: with commas between them; NULL with an exception. */
static const uint8_t *write_ids(Work *work, const Sent *sent)
{
    uint8_t front[HEX_SIZE];
    work->ids.size = 0;
    uint8_t *at = pile_room(&work->ids, (Py_ssize_t)sent->count * (ID_SIZE + 1));
    if (at == NULL)
        return NULL;
    write_hex(front, read_64(work->store_host.at));
    for (int64_t nth = 0; nth < sent->count; nth++) {
        at = write_span(at, (Span){front, HEX_SIZE});
        at = write_hex(at, read_64(sent->units + nth * UNIT_SIZE));
        *at++ = ',';
    }
    return work->ids.bytes;
}

int add_reply(Work *work, const Template *template, const Reply *reply)
{
    Py_ssize_t size = reply_size(template, reply);
    uint8_t *at = pile_room(&work->replies, size);
    if (at == NULL)
        return -1;
    write_reply(at, template, reply);
    work->replies.size += size;
    return 0;
}

int answer_sent(Work *work, const Place *place, const Sent *sent)
{
    uint8_t digits[NUMBER_SIZE_MAX];
    const uint8_t *ids = write_ids(work, sent);
    Reply reply = {sent->is_json, sent->key.size > 0 ? 3 : 2, sent->opaque,
                   {{ids, (Py_ssize_t)sent->count * (ID_SIZE + 1) - 1},
                    {digits, write_digits(digits, sent->queue_offset)}, sent->key}, 0};
    return ids == NULL ? -1 : add_reply(work, &place->reply, &reply);
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
                    int64_t log_offset, int64_t size)
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
        (const char *)message->body.at, message->body.size, (long long)tags_code_of(message),
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
    int64_t log_offset = work->log_end, queue_offset = tail->queue_offset;
    int64_t size = add_record(work, tail, message, group == NULL ? NULL : place);
    if (size <= 0)
        return (int)size;
    if (place->sizes == NULL && (place->sizes = PyList_New(0)) == NULL)
        return -1;
    if ((group != NULL && add_half(work, place, message, group, log_offset, size) < 0) ||
        append_number(place->sizes, size) < 0 || lead_to_record(work, tail, message, size) < 0)
        return -1;
    work->count++;
    if (message->shape->is_one_way) {
        work->one_way_count++;
        return 1;
    }
    if (group != NULL && message->shape->wants_id) {
        work->asking = message;
        return 1;
    }
    Py_ssize_t units_size = PyByteArray_Size(tail->units);
    Sent sent = {message->opaque, message->value[message->plan->key],
                 (const uint8_t *)PyByteArray_AsString(tail->units) + units_size - UNIT_SIZE, 1,
                 queue_offset, message->shape->is_json};
    return answer_sent(work, place, &sent) < 0 ? -1 : 1;
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

/* The opaque of the last request, if Python has to answer it, and whether it is in JSON. */
static PyObject *asked(const Work *work)
{
    if (work->asking == NULL)
        return Py_NewRef(Py_None);
    Span opaque = work->asking->opaque;
    return Py_BuildValue("(y#i)", (const char *)opaque.at, opaque.size,
                         work->asking->shape->is_json);
}

static PyObject *answer(Work *work, Py_ssize_t at)
{
    PyObject *tails = tails_of(work), *sent = PyList_New(0), *found = NULL;
    int failed = tails == NULL || sent == NULL;
    for (int nth = 0; !failed && nth < work->places_count; nth++)
        failed = add_pair(sent, work->place[nth].target, work->place[nth].sizes) < 0;
    if (work->batches == NULL)
        failed |= (work->batches = PyList_New(0)) == NULL;
    if (!failed)
        found = tuple_taking(
            (PyObject *[]){PyLong_FromSsize_t(at), bytes_of_pile(&work->records),
                           bytes_of_pile(&work->replies), Py_NewRef(tails), Py_NewRef(sent),
                           Py_NewRef(work->keys), Py_NewRef(work->halves),
                           Py_NewRef(work->batches), PyLong_FromLongLong(work->count),
                           PyLong_FromLongLong(work->one_way_count), asked(work)},
            11);
    Py_XDECREF(tails);
    Py_XDECREF(sent);
    return found;
}

PyObject *lay_out_sends(PyObject *const *args)
{
    Work work;
    Message message;
    PyObject *found = NULL;
    int is_put = work_begin(&work, args, args[7]) < 0 ? -1 : 1;
    const uint8_t *begin = work.frames.at, *served_end = begin;
    while (is_put > 0 && work.asking == NULL) {
        is_put = take_apart(&work.known, &work.frames, &message);
        if (is_put > 0)
            is_put = serve(&work, &message);
        if (is_put > 0)
            served_end = message.end;
    }
    if (is_put >= 0)
        found = served_end > begin ? answer(&work, served_end - work.frames.begin)
                                   : Py_NewRef(Py_None);
    work_forget(&work);
    return found;
}
