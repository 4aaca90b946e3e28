/* Halves that stand one behind the other in the log and are alike (txn/stored_halves.py): a start with a
   million of them reads each. */

#include "record.h"
#include "apart.h"

/* What halves have in common whose properties have that size (txn/half_shape.KnownShape). */
typedef struct {
    PyObject *known;     /* lent by the dictionary */
    Span sample, fixed;  /* properties, and which bytes of them are alike: 1, or 0 */
} Alike;

static int is_alike(const Alike *alike, const uint8_t *at)
{
    for (Py_ssize_t i = 0; i < alike->sample.size; i++)
        if (alike->fixed.at[i] ? at[i] != alike->sample.at[i] : at[i] == 1 || at[i] == 2)
            return 0;
    return 1;
}

/* Those with properties of that size: 1; 0 when none were seen, -1 with an exception. */
static int find_alike(PyObject *by_size, Py_ssize_t size, Alike *found)
{
    if (found->known != NULL && found->sample.size == size)
        return 1;
    PyObject *number = PyLong_FromSsize_t(size);
    if (number == NULL)
        return -1;
    found->known = PyDict_GetItemWithError(by_size, number);
    Py_DECREF(number);
    if (found->known == NULL)
        return PyErr_Occurred() ? -1 : 0;
    if (span_at(found->known, 2, &found->sample) < 0 || span_at(found->known, 3, &found->fixed) < 0)
        return -1;
    if (found->sample.size == size && found->fixed.size == size)
        return 1;
    PyErr_SetString(PyExc_ValueError, "a shape is not of its size");
    return -1;
}

/* Whether the record there is a whole half like others: 1, 0, or -1 with an exception. */
static int stands(PyObject *by_size, Span topic, Span record, int64_t log_offset,
                  int64_t queue_offset, Alike *alike)
{
    const uint8_t *at = record.at;
    if (record.size < HEAD_SIZE + topic.size + 2 ||
        read_32(at) != (uint32_t)record.size || read_32(at + MAGIC_AT) != MAGIC_V1 ||
        read_64(at + LOG_OFFSET_AT) != log_offset ||
        read_64(at + QUEUE_OFFSET_AT) != queue_offset || read_32(at + SYS_FLAG_AT) & HOSTS_V6)
        return 0;
    int64_t body_size = read_32(at + BODY_SIZE_AT);
    int64_t size = record.size - HEAD_SIZE - topic.size - 2 - body_size;
    if (size < 0)
        return 0;
    Span body = {at + HEAD_SIZE, (Py_ssize_t)body_size};
    const uint8_t *front = body.at + body.size + topic.size;
    if (memcmp(body.at + body.size, topic.at, (size_t)topic.size) != 0 ||
        (front[0] << 8 | front[1]) != size)
        return 0;
    int is_known = find_alike(by_size, (Py_ssize_t)size, alike);
    if (is_known <= 0)
        return is_known;
    return is_alike(alike, front + 2) && body_crc(body) == read_32(at + CRC_AT);
}

/* One entry's half, to the end of both lists: 1; 0 when it is none, -1 with an exception. */
static int add_half(PyObject *by_size, Span topic, Span data, int64_t base, PyObject *entry,
                    int64_t queue_offset, Alike *alike, PyObject *stored_ms, PyObject *shapes)
{
    int64_t log_offset, size;
    if (number_at(entry, 0, 0, INT64_MAX, &log_offset) < 0 ||
        number_at(entry, 1, INT32_MIN, INT32_MAX, &size) < 0)
        return -1;
    if (log_offset < base || size < 0 || log_offset - base > data.size - size)
        return 0;
    Span record = {data.at + (log_offset - base), (Py_ssize_t)size};
    int is_whole = stands(by_size, topic, record, log_offset, queue_offset, alike);
    if (is_whole > 0 && (append_number(stored_ms, read_64(record.at + STORED_AT)) < 0 ||
                         PyList_Append(shapes, alike->known) < 0))
        return -1;
    return is_whole;
}

PyObject *alike_halves(PyObject *const *args)
{
    Span data, topic;
    if (!PyList_Check(args[2]) || !PyDict_Check(args[6])) {
        PyErr_SetString(PyExc_TypeError, "data, base, entries, first, nth, topic, by_size");
        return NULL;
    }
    if (span_of(args[0], &data) < 0 || span_of(args[5], &topic) < 0)
        return NULL;
    int64_t base = PyLong_AsLongLong(args[1]), first = PyLong_AsLongLong(args[3]);
    Py_ssize_t nth = PyLong_AsSsize_t(args[4]), entries_count = PyList_Size(args[2]);
    if (PyErr_Occurred())
        return NULL;
    if (base < 0 || first < 0 || nth < 0 || first > INT64_MAX - entries_count) {
        PyErr_SetString(PyExc_ValueError, "a number is out of range");
        return NULL;
    }
    Alike alike = {NULL, {NULL, 0}, {NULL, 0}};
    PyObject *stored_ms = PyList_New(0), *shapes = PyList_New(0), *found = NULL;
    int is_half = stored_ms == NULL || shapes == NULL ? -1 : 1;
    for (; is_half > 0 && nth < entries_count; nth++)
        is_half = add_half(args[6], topic, data, base, PyList_GetItem(args[2], nth), first + nth,
                           &alike, stored_ms, shapes);
    if (is_half >= 0)
        found = PyTuple_Pack(2, stored_ms, shapes);
    Py_XDECREF(stored_ms);
    Py_XDECREF(shapes);
    return found;
}
