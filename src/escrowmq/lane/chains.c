/* What an index file gets for keys (store/index_chains.py): the slots that they belong to, and the
   entries that stand in front of those that are there. Keys are tuples: hash of what stands in
   front of a key, the key, log offset, store time. */

#include "bytes.h"
#include "sends.h"

#define ENTRY_SIZE 20
#define HEAD_SIZE 4
#define SECONDS_MAX 0x7FFFFFFF

/* 1, and the key; 0 when it is not ASCII, whose characters are counted elsewhere. */
static int ascii_at(PyObject *key, Span *found)
{
    PyObject *text = PyTuple_GetItem(key, 1);
    if (text == NULL)
        return -1;
    if (!PyUnicode_Check(text))
        return span_of(text, found) < 0 ? -1 : is_ascii(*found);
    found->at = (const uint8_t *)PyUnicode_AsUTF8AndSize(text, &found->size);
    if (found->at != NULL)
        return is_ascii(*found);
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
        return -1;
    PyErr_Clear(); /* half of a pair */
    return 0;
}

const char find_slots_doc[] = "find_slots(keys, slots_count, slots_at)\n\nSee store/index_chains.py.";

PyObject *find_slots(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 3 || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "keys, slots_count, slots_at");
        return NULL;
    }
    int64_t slots_count = PyLong_AsLongLong(args[1]), slots_at = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred())
        return NULL;
    if (slots_count < 1 || slots_count > INT32_MAX || slots_at < 0 || slots_at > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "slots are out of range");
        return NULL;
    }
    PyObject *codes = PyList_New(0), *places = PyList_New(0), *found = NULL;
    int is_ascii = codes == NULL || places == NULL ? -1 : 1;
    for (Py_ssize_t nth = 0; is_ascii > 0 && nth < PyList_Size(args[0]); nth++) {
        PyObject *key = PyList_GetItem(args[0], nth);
        Span text;
        int64_t prefix;
        if (number_at(key, 0, -INT64_C(0x80000000), UINT32_MAX, &prefix) < 0)
            is_ascii = -1;
        else
            is_ascii = ascii_at(key, &text);
        if (is_ascii <= 0)
            break;
        uint32_t code = java_hash((uint32_t)prefix, text);
        if (code >= 0x80000000u) /* abs() of RocketMQ, for which the least integer has none */
            code = code == 0x80000000u ? 0 : 0u - code;
        if (append_number(codes, code) < 0 ||
            append_number(places, slots_at + (int64_t)code % slots_count * HEAD_SIZE) < 0)
            is_ascii = -1;
    }
    if (is_ascii == 0)
        found = Py_NewRef(Py_None);
    else if (is_ascii > 0)
        found = PyTuple_Pack(2, codes, places);
    Py_XDECREF(codes);
    Py_XDECREF(places);
    return found;
}

/* The number of the newest entry of a slot: of these, or that which the file has. */
static int newest_of(PyObject *newest, PyObject *place, const uint8_t *head, int64_t *found)
{
    PyObject *number = PyDict_GetItemWithError(newest, place);
    if (number == NULL && PyErr_Occurred())
        return -1;
    *found = number == NULL ? (int32_t)read_32(head) : PyLong_AsLongLong(number);
    return *found == -1 && PyErr_Occurred() ? -1 : 0;
}

static int64_t seconds_since(int64_t begin_ms, int64_t stored_ms)
{
    if (stored_ms < begin_ms)
        return 0;
    uint64_t seconds = ((uint64_t)stored_ms - (uint64_t)begin_ms) / 1000;
    return seconds < SECONDS_MAX ? (int64_t)seconds : SECONDS_MAX;
}

/* One entry, and its slot's newest; whether it is the first of its slot, or -1. */
static int add_entry(uint8_t *at, PyObject *key, PyObject *code, PyObject *place,
                     const uint8_t *head, PyObject *newest, int64_t number, int64_t begin_ms)
{
    int64_t hash = PyLong_AsLongLong(code), log_offset, stored_ms, previous;
    if ((hash == -1 && PyErr_Occurred()) ||
        number_at(key, 2, INT64_MIN, INT64_MAX, &log_offset) < 0 ||
        number_at(key, 3, INT64_MIN, INT64_MAX, &stored_ms) < 0 ||
        newest_of(newest, place, head, &previous) < 0)
        return -1;
    int is_first = previous <= 0 || previous >= number;
    at = write_32(at, (uint32_t)hash);
    at = write_64(at, log_offset);
    at = write_32(at, (uint32_t)seconds_since(begin_ms, stored_ms));
    write_32(at, is_first ? 0 : (uint32_t)previous);
    PyObject *made = PyLong_FromLongLong(number);
    int done = made == NULL ? -1 : PyDict_SetItem(newest, place, made);
    Py_XDECREF(made);
    return done < 0 ? -1 : is_first;
}

const char chain_doc[] =
    "chain(keys, codes, places, heads, first, begin_ms)\n\nSee store/index_chains.py.";

PyObject *chain(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    char *heads;
    Py_ssize_t heads_size, many;
    if (count != 6 || !PyList_Check(args[0]) || !PyList_Check(args[1]) || !PyList_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "keys, codes, places, heads, first, begin_ms");
        return NULL;
    }
    if (PyBytes_AsStringAndSize(args[3], &heads, &heads_size) < 0)
        return NULL;
    int64_t first = PyLong_AsLongLong(args[4]), begin_ms = PyLong_AsLongLong(args[5]);
    if (PyErr_Occurred())
        return NULL;
    many = PyList_Size(args[0]);
    if (PyList_Size(args[1]) != many || PyList_Size(args[2]) != many || many > INT32_MAX / 64 ||
        heads_size != many * HEAD_SIZE || first < 1 || first > INT32_MAX - many) {
        PyErr_SetString(PyExc_ValueError, "keys, codes, places and heads do not fit together");
        return NULL;
    }
    PyObject *entries = PyBytes_FromStringAndSize(NULL, many * ENTRY_SIZE);
    PyObject *newest = PyDict_New(), *found = NULL;
    int fresh_count = 0, is_first = entries == NULL || newest == NULL ? -1 : 0;
    for (Py_ssize_t nth = 0; is_first >= 0 && nth < many; nth++) {
        uint8_t *at = (uint8_t *)PyBytes_AsString(entries) + nth * ENTRY_SIZE;
        is_first = add_entry(at, PyList_GetItem(args[0], nth), PyList_GetItem(args[1], nth),
                             PyList_GetItem(args[2], nth),
                             (const uint8_t *)heads + nth * HEAD_SIZE, newest, first + nth,
                             begin_ms);
        fresh_count += is_first;
    }
    if (is_first >= 0)
        found = Py_BuildValue("(OOi)", entries, newest, fresh_count);
    Py_XDECREF(entries);
    Py_XDECREF(newest);
    return found;
}
