/* Lays out the records of a batch (broker/short_batches): all of them, or none. It changes nothing
   that it was given. */

#include "work.h"

#define ENTRY_HEAD_SIZE 20
#define COUNT_MAX 100000

/* Where a message is, as the answer names it: behind a comma all but the first. */
static int add_id(Work *work)
{
    uint8_t *begin = pile_room(&work->replies, 1 + 2 * HEX_SIZE), *at = begin;
    if (begin == NULL)
        return -1;
    if (work->count > 0)
        *at++ = ',';
    at = write_hex(at, read_64(work->store_host.at));
    at = write_hex(at, work->log_end);
    work->replies.size += at - begin;
    return 0;
}

/* Whether a record more is put; -1 with an exception. */
static int put(Work *work, Tail *tail, const Message *message)
{
    int64_t log_offset = work->log_end;
    int64_t size = add_record(work, tail, message, NULL);
    if (size <= 0)
        return (int)size;
    if (add_id(work) < 0 || add_unit(tail, log_offset, size, tags_code_of(message)) < 0 ||
        add_keys(work, tail, message, log_offset) < 0)
        return -1;
    work->log_end += size;
    work->count++;
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

static PyObject *put_entries(Work *work, Tail *tail, PyObject *common, Span entries,
                             int64_t count_max)
{
    Shape shape;
    Message message;
    int64_t sys_flag, times;
    if (number_at(common, 0, INT32_MIN, INT32_MAX, &sys_flag) < 0 ||
        number_at(common, 1, INT64_MIN, INT64_MAX, &message.born_ms) < 0 ||
        number_at(common, 3, INT32_MIN, INT32_MAX, &times) < 0)
        return NULL;
    shape.sys_flag = (int32_t)sys_flag;
    shape.reconsume_times = (int32_t)times;
    message.shape = &shape;
    Py_ssize_t at = 0, taken = 1;
    while (at < entries.size && taken > 0 && work->count < count_max) {
        taken = put_entry(work, tail, &shape, &message, entries.at + at, entries.size - at);
        if (taken < 0)
            return NULL;
        at += taken;
    }
    if (at == 0 || at < entries.size)
        return Py_NewRef(Py_None);
    return Py_BuildValue("(NOON)", bytes_of_pile(&work->records), tail->units, work->keys,
                         bytes_of_pile(&work->replies));
}

const char lay_out_batch_doc[] =
    "lay_out_batch(data, begin, end, plans, tail, common, moment, count_max)\n\n"
    "See broker/short_batches.py.";

PyObject *lay_out_batch(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Work work;
    Tail tail;
    Span data;
    PyObject *found = NULL;
    if (count != 8 || !PyDict_Check(args[3])) {
        PyErr_SetString(PyExc_TypeError,
                        "data, begin, end, plans, tail, common, moment, count_max");
        return NULL;
    }
    Py_ssize_t begin = PyLong_AsSsize_t(args[1]), end = PyLong_AsSsize_t(args[2]);
    int64_t count_max = PyLong_AsLongLong(args[7]);
    if (PyErr_Occurred() || span_of(args[0], &data) < 0)
        return NULL;
    if (begin < 0 || end < begin || end > data.size || count_max < 0 || count_max > COUNT_MAX) {
        PyErr_SetString(PyExc_ValueError, "a batch beyond the data, or beyond all bounds");
        return NULL;
    }
    memset(&tail, 0, sizeof tail);
    if (work_begin(&work, NULL, args[3], NULL, args[6]) == 0 && read_tail(args[4], &tail) == 0)
        found = put_entries(&work, &tail, args[5], (Span){data.at + begin, end - begin},
                            count_max);
    forget_tail(&tail);
    work_forget(&work);
    return found;
}
