/* Lays out the records of a batch: all of them, or none. It changes nothing that it was given. */

#include "work.h"

#define ENTRY_HEAD_SIZE 20

/* -- its messages ------------------------------------------------------------------------------ */

/* Whether a record more is put; -1 with an exception. */
static int put(Work *work, Tail *tail, const Message *message)
{
    int64_t size = add_record(work, tail, message, NULL);
    if (size <= 0)
        return (int)size;
    return lead_to_record(work, tail, message, size) < 0 ? -1 : 1;
}

/* One entry: how many bytes it takes; 0 when it is none to be served here, -1 with an exception. */
static Py_ssize_t put_entry(Work *work, Tail *tail, Shape *shape, Message *message,
                            const uint8_t *at, Py_ssize_t left)
{
    if (left < ENTRY_HEAD_SIZE + 2)
        return 0;
    int64_t size = (int32_t)read_32(at), body_size = (int32_t)read_32(at + 16);
    if (size < ENTRY_HEAD_SIZE + 2 || size > left || body_size < 1 ||
        body_size > size - ENTRY_HEAD_SIZE - 2)
        return 0;
    message->body = (Span){at + ENTRY_HEAD_SIZE, (Py_ssize_t)body_size};
    const uint8_t *behind = at + ENTRY_HEAD_SIZE + body_size;
    Py_ssize_t properties_size = (Py_ssize_t)read_16(behind);
    if (ENTRY_HEAD_SIZE + body_size + 2 + properties_size != size)
        return 0;
    message->properties = (Span){behind + 2, properties_size};
    shape->flag = (int32_t)read_32(at + 12);
    int is_put = read_properties(&work->known, message);
    if (is_put <= 0)
        return is_put;
    if (message->plan->is_half >= 0 || !find_keys(message, (int)work->keys_max))
        return 0;
    is_put = put(work, tail, message);
    return is_put <= 0 ? is_put : (Py_ssize_t)size;
}

/* All of them, whose records have in common what `like` says: how many; 0 when they are none to be
   served here, some of them put; -1 with an exception. */
static int64_t put_entries(Work *work, Tail *tail, const Shape *like, int64_t born_ms, Span entries)
{
    Shape shape = *like;
    Message message;
    Py_ssize_t at = 0, taken = 1;
    int64_t count = 0;
    message.shape = &shape;
    message.born_ms = born_ms;
    for (; at < entries.size && taken > 0 && count < work->batch_max; count++) {
        taken = put_entry(work, tail, &shape, &message, entries.at + at, entries.size - at);
        if (taken < 0)
            return -1;
        at += taken;
    }
    return taken > 0 && at == entries.size ? count : 0;
}

/* -- the whole --------------------------------------------------------------------------------- */

/* How far all that is made had come. */
typedef struct {
    Py_ssize_t records, keys, units;
    int64_t queue_offset, log_end;
} Mark;

static Mark mark_of(const Work *work, const Tail *tail)
{
    return (Mark){work->records.size, PyByteArray_Size(work->keys),
                  tail->units == NULL ? 0 : PyByteArray_Size(tail->units), tail->queue_offset,
                  work->log_end};
}

/* As it was: 0, or -1 with an exception. */
static int go_back(Work *work, Tail *tail, Mark mark)
{
    work->records.size = mark.records;
    work->log_end = mark.log_end;
    tail->queue_offset = mark.queue_offset;
    if (mark.units == 0)
        Py_CLEAR(tail->units); /* nothing was put there */
    else if (PyByteArray_Resize(tail->units, mark.units) < 0)
        return -1;
    return PyByteArray_Resize(work->keys, mark.keys);
}

/* Whether what its sender says of the whole is plain, and the key of that, if it has one. */
static int read_whole(Work *work, Message *whole, Span *key)
{
    *key = (Span){NULL, 0};
    Span said = whole->properties;
    int lacks_end = said.size > 0 && said.at[said.size - 1] != 2;
    PyObject *name = PyBytes_FromStringAndSize(NULL, said.size + lacks_end);
    if (name == NULL)
        return -1;
    uint8_t *end = write_span((uint8_t *)PyBytes_AsString(name), said);
    if (lacks_end)
        *end = 2;
    PyObject *is_plain = PyDict_GetItemWithError(work->unnamed, name);
    Py_DECREF(name);
    if (is_plain != NULL || PyErr_Occurred())
        return is_plain == NULL ? -1 : is_plain == Py_True;
    int is_read = read_properties(&work->known, whole);
    if (is_read <= 0 || whole->plan->is_half >= 0)
        return is_read < 0 ? -1 : 0;
    *key = whole->value[whole->plan->key];
    return is_sayable(whole->shape, *key);
}

int put_batch(Work *work, Place *place, Message *whole)
{
    Tail *tail = &place->tail;
    Span key;
    if (!place->has_tail || !whole->shape->may_be_plain)
        return 0;
    int is_plain = read_whole(work, whole, &key);
    if (is_plain <= 0)
        return is_plain;
    Mark mark = mark_of(work, tail);
    int64_t count = put_entries(work, tail, whole->shape, whole->born_ms, whole->body);
    if (count <= 0)
        return count < 0 || go_back(work, tail, mark) < 0 ? -1 : 0;
    int is_one_way = whole->shape->is_one_way;
    Sent sent = {whole->opaque, key,
                 (const uint8_t *)PyByteArray_AsString(tail->units) + mark.units, count,
                 mark.queue_offset, whole->shape->is_json};
    if (!is_one_way && answer_sent(work, place, &sent) < 0)
        return -1;
    if (work->batches == NULL && (work->batches = PyList_New(0)) == NULL)
        return -1;
    PyObject *batch = Py_BuildValue("(OLLi)", place->topic, (long long)count,
                                    (long long)(work->log_end - mark.log_end), is_one_way);
    int done = batch == NULL ? -1 : PyList_Append(work->batches, batch);
    Py_XDECREF(batch);
    return done < 0 ? -1 : 1;
}
