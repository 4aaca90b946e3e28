/* Which units of a queue are read at once, and where their records are (store/unit_runs). */

#include "work.h"

#define SIZE_AT 8
#define CODE_AT 12
#define CODE_SIZE 8
#define GAP_SIZE 0x7FFFFFFF
#define RECORDS_SIZE_MAX (128 * 1024 * 1024)
#define LOG_OFFSET_MAX (INT64_C(1) << 62)

typedef struct {
    PyObject *runs;    /* a list of pairs */
    PyObject *offsets; /* a list, once some units between others were left out */
    int64_t first, at; /* queue offsets */
    int64_t count, size;
    int64_t run_start, run_end;
} Chosen;

static int is_wanted(PyObject *given, Span codes, const uint8_t *unit)
{
    for (Py_ssize_t i = 0; i < codes.size; i += CODE_SIZE)
        if (memcmp(codes.at + i, unit + CODE_AT, CODE_SIZE) == 0)
            return 1;
    return given == Py_None;
}

static int end_run(Chosen *chosen)
{
    if (chosen->run_end < 0)
        return 0;
    PyObject *run = Py_BuildValue("(LL)", (long long)chosen->run_start,
                                  (long long)(chosen->run_end - chosen->run_start));
    int done = run == NULL ? -1 : PyList_Append(chosen->runs, run);
    Py_XDECREF(run);
    return done;
}

/* The present unit is of a message that is given. */
static int choose(Chosen *chosen, int64_t log_offset, int64_t size)
{
    if (log_offset != chosen->run_end) {
        if (end_run(chosen) < 0)
            return -1;
        chosen->run_start = log_offset;
    }
    chosen->run_end = log_offset + size;
    if (chosen->count == 0)
        chosen->first = chosen->at;
    if (chosen->offsets == NULL && chosen->at != chosen->first + chosen->count) {
        chosen->offsets = PyList_New(0);
        if (chosen->offsets == NULL)
            return -1;
        for (int64_t nth = 0; nth < chosen->count; nth++)
            if (append_number(chosen->offsets, chosen->first + nth) < 0)
                return -1;
    }
    chosen->count++;
    return chosen->offsets == NULL ? 0 : append_number(chosen->offsets, chosen->at);
}

static PyObject *chosen_of(Chosen *chosen)
{
    if (end_run(chosen) < 0)
        return NULL;
    if (chosen->offsets == NULL)
        chosen->offsets = PyObject_CallFunction(
            (PyObject *)&PyRange_Type, "LL", (long long)chosen->first,
            (long long)(chosen->first + chosen->count));
    if (chosen->offsets == NULL)
        return NULL;
    return Py_BuildValue("(OOLL)", chosen->runs, chosen->offsets, (long long)chosen->at,
                         (long long)chosen->size);
}

/* 1 when the units are looked through; 0 when one of them can have been made by no writer. */
static int look_through(Chosen *chosen, Span units, PyObject *given, Span codes,
                        int64_t count_max, int64_t size_max)
{
    for (Py_ssize_t i = 0; i + UNIT_SIZE <= units.size; i += UNIT_SIZE, chosen->at++) {
        const uint8_t *unit = units.at + i;
        if (chosen->count >= count_max && i > 0)
            break;
        if (!is_wanted(given, codes, unit))
            continue;
        int64_t log_offset = read_64(unit), size = (int32_t)read_32(unit + SIZE_AT);
        if (chosen->size + size > size_max && (chosen->count > 0 || size == GAP_SIZE)) {
            if (size != GAP_SIZE)
                break;
            continue;
        }
        if (size <= 0 || size > RECORDS_SIZE_MAX || log_offset < 0 || log_offset >= LOG_OFFSET_MAX)
            return 0;
        chosen->size += size;
        if (choose(chosen, log_offset, size) < 0)
            return -1;
    }
    return 1;
}

const char find_runs_doc[] =
    "find_runs(units, first, codes, count_max, size_max)\n\nSee store/unit_runs.find_runs.";

PyObject *find_runs(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Span units, codes = {NULL, 0};
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "units, first, codes, count_max, size_max");
        return NULL;
    }
    if (span_of(args[0], &units) < 0 || (args[2] != Py_None && span_of(args[2], &codes) < 0))
        return NULL;
    int64_t first = PyLong_AsLongLong(args[1]);
    int64_t count_max = PyLong_AsLongLong(args[3]), size_max = PyLong_AsLongLong(args[4]);
    if (PyErr_Occurred())
        return NULL;
    if (first < 0 || first > INT64_MAX - units.size || codes.size % CODE_SIZE ||
        size_max > RECORDS_SIZE_MAX) {
        PyErr_SetString(PyExc_ValueError, "no place of a queue, no codes, or too many bytes");
        return NULL;
    }
    Chosen chosen = {PyList_New(0), NULL, first, first, 0, 0, -1, -1};
    PyObject *found = NULL;
    int done = chosen.runs == NULL ? -1
                                   : look_through(&chosen, units, args[2], codes, count_max,
                                                  size_max);
    if (done > 0)
        found = chosen_of(&chosen);
    else if (done == 0)
        found = Py_NewRef(Py_None);
    Py_XDECREF(chosen.runs);
    Py_XDECREF(chosen.offsets);
    return found;
}
