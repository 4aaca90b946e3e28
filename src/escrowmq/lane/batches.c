/* Lays out the records of a batch (broker/fast/short_batches): all of them, or none. It changes nothing
   that it was given. */

#include "work.h"

#define ENTRY_HEAD_SIZE 20

/* -- its messages ------------------------------------------------------------------------------ */

/* Whether a record more is put; -1 with an exception. */
static int put(Work *work, Tail *tail, const Message *message)
{
    int64_t log_offset = work->log_end;
    int64_t size = add_record(work, tail, message, NULL);
    if (size <= 0)
        return (int)size;
    if (add_unit(tail, log_offset, size, tags_code_of(message)) < 0 ||
        add_keys(work, tail, message, log_offset) < 0)
        return -1;
    work->log_end += size;
    return 1;
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

/* -- one of a stretch of requests -------------------------------------------------------------- */

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
    if (!is_one_way && add_reply(work, place, &sent) < 0)
        return -1;
    if (work->batches == NULL && (work->batches = PyList_New(0)) == NULL)
        return -1;
    PyObject *batch = Py_BuildValue("(OLLi)", place->topic, (long long)count,
                                    (long long)(work->log_end - mark.log_end), is_one_way);
    int done = batch == NULL ? -1 : PyList_Append(work->batches, batch);
    Py_XDECREF(batch);
    return done < 0 ? -1 : 1;
}

/* -- one alone --------------------------------------------------------------------------------- */

static PyObject *answer(Work *work, Tail *tail, PyObject *common, Span entries)
{
    Shape like;
    int64_t sys_flag, born_ms, times;
    if (number_at(common, 0, INT32_MIN, INT32_MAX, &sys_flag) < 0 ||
        number_at(common, 1, INT64_MIN, INT64_MAX, &born_ms) < 0 ||
        number_at(common, 3, INT32_MIN, INT32_MAX, &times) < 0)
        return NULL;
    memset(&like, 0, sizeof like);
    like.sys_flag = (int32_t)sys_flag;
    like.reconsume_times = (int32_t)times;
    int64_t count = put_entries(work, tail, &like, born_ms, entries);
    if (count <= 0)
        return count < 0 ? NULL : Py_NewRef(Py_None);
    PyObject *ids = PyBytes_FromStringAndSize(NULL, ids_size(count));
    if (ids == NULL)
        return NULL;
    write_ids((uint8_t *)PyBytes_AsString(ids), work->store_host,
              (const uint8_t *)PyByteArray_AsString(tail->units), count);
    return Py_BuildValue("(NOON)", bytes_of_pile(&work->records), tail->units, work->keys, ids);
}

const char lay_out_batch_doc[] =
    "lay_out_batch(data, begin, end, plans, tail, common, moment)\n\n"
    "See broker/fast/short_batches.py.";

PyObject *lay_out_batch(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Work work;
    Tail tail;
    Span data;
    PyObject *found = NULL;
    if (count != 7 || !PyDict_Check(args[3])) {
        PyErr_SetString(PyExc_TypeError, "data, begin, end, plans, tail, common, moment");
        return NULL;
    }
    Py_ssize_t begin = PyLong_AsSsize_t(args[1]), end = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred() || span_of(args[0], &data) < 0)
        return NULL;
    if (begin < 0 || end < begin || end > data.size) {
        PyErr_SetString(PyExc_ValueError, "a batch beyond the data");
        return NULL;
    }
    memset(&tail, 0, sizeof tail);
    if (work_begin(&work, NULL, args[3], NULL, args[6]) == 0 && read_tail(args[4], &tail) == 0)
        found = answer(&work, &tail, args[5], (Span){data.at + begin, end - begin});
    forget_tail(&tail);
    work_forget(&work);
    return found;
}
