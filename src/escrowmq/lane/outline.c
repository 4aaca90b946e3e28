/* Where records begin that stand one behind the other in the log (codec/log_records.outline_records). */

#include "record.h"
#include "apart.h"

#define FRONT_SIZE 40 /* up to sysFlag */
#define ANY_KIND (-1)

/* Whether a record begins there by size, magic and own place alone, and its size. */
static int begins(const uint8_t *at, Py_ssize_t left, int64_t log_offset, Py_ssize_t *size)
{
    if (left < FRONT_SIZE)
        return 0;
    uint32_t magic = read_32(at + MAGIC_AT), found = read_32(at);
    *size = (Py_ssize_t)found;
    return (magic == MAGIC_V1 || magic == MAGIC_V2) &&
           read_64(at + LOG_OFFSET_AT) == log_offset && found >= RECORD_SIZE_MIN &&
           *size <= left;
}

PyObject *find_starts(PyObject *const *args)
{
    Span data;
    if (span_of(args[0], &data) < 0)
        return NULL;
    int64_t base = PyLong_AsLongLong(args[1]);
    long mask = PyLong_AsLong(args[2]), kind = PyLong_AsLong(args[3]);
    if (PyErr_Occurred())
        return NULL;
    if (base < 0 || base > INT64_MAX - data.size) {
        PyErr_SetString(PyExc_ValueError, "a place beyond the log");
        return NULL;
    }
    PyObject *starts = PyList_New(0);
    Py_ssize_t at = 0, last = -1, size;
    int failed = starts == NULL;
    while (!failed && begins(data.at + at, data.size - at, base + at, &size)) {
        uint32_t found_kind = read_32(data.at + at + SYS_FLAG_AT) & (uint32_t)mask;
        if (kind == ANY_KIND || found_kind == (uint32_t)kind)
            failed = append_number(starts, at) < 0;
        last = at;
        at += size;
    }
    PyObject *found = failed ? NULL : Py_BuildValue("(Onn)", starts, at, last);
    Py_XDECREF(starts);
    return found;
}
