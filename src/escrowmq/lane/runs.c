/* Which units of a queue are read at once, and where their records are (store/unit_runs); and these
   records (base/runs). */

#include "runs.h"
#include "work.h"

#define SIZE_AT 8
#define CODE_AT 12
#define CODE_SIZE 8
#define GAP_SIZE 0x7FFFFFFF
#define RECORDS_SIZE_MAX (128 * 1024 * 1024)
#define LOG_OFFSET_MAX (INT64_C(1) << 62)

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
    uint8_t *at = pile_room(&chosen->runs, sizeof(Run));
    if (at == NULL)
        return -1;
    Run run = {chosen->run_start, chosen->run_end - chosen->run_start};
    memcpy(at, &run, sizeof run);
    chosen->runs.size += sizeof run;
    return 0;
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
    if (chosen->offsets == NULL)
        chosen->offsets = PyObject_CallFunction(
            (PyObject *)&PyRange_Type, "LL", (long long)chosen->first,
            (long long)(chosen->first + chosen->count));
    if (chosen->offsets == NULL)
        return NULL;
    PyObject *runs = bytes_of_pile(&chosen->runs);
    PyObject *found = runs == NULL ? NULL
                                   : Py_BuildValue("(OOLL)", runs, chosen->offsets,
                                                   (long long)chosen->at, (long long)chosen->size);
    Py_XDECREF(runs);
    return found;
}

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

int choose_units(PyObject *const *args, Chosen *chosen)
{
    Span units, codes = {NULL, 0};
    *chosen = (Chosen){{NULL, 0, 0}, NULL, 0, 0, 0, 0, -1, -1};
    if (span_of(args[0], &units) < 0 || (args[2] != Py_None && span_of(args[2], &codes) < 0))
        return -1;
    int64_t first = PyLong_AsLongLong(args[1]);
    int64_t count_max = PyLong_AsLongLong(args[3]), size_max = PyLong_AsLongLong(args[4]);
    if (PyErr_Occurred())
        return -1;
    if (first < 0 || first > INT64_MAX - units.size || codes.size % CODE_SIZE ||
        size_max > RECORDS_SIZE_MAX) {
        PyErr_SetString(PyExc_ValueError, "no place of a queue, no codes, or too many bytes");
        return -1;
    }
    chosen->first = chosen->at = first;
    int done = look_through(chosen, units, args[2], codes, count_max, size_max);
    return done > 0 && end_run(chosen) < 0 ? -1 : done;
}

void forget_chosen(Chosen *chosen)
{
    PyMem_Free(chosen->runs.bytes);
    Py_XDECREF(chosen->offsets);
}

PyObject *find_runs(PyObject *const *args)
{
    Chosen chosen;
    int done = choose_units(args, &chosen);
    PyObject *found = done > 0 ? chosen_of(&chosen) : done == 0 ? Py_NewRef(Py_None) : NULL;
    forget_chosen(&chosen);
    return found;
}

Py_ssize_t size_of_runs(Span runs, int64_t base, Py_ssize_t memory_size)
{
    int64_t size = 0;
    for (Py_ssize_t i = 0; i < runs.size; i += sizeof(Run)) {
        Run run = run_at(runs, i);
        if (run.place < base || run.size < 0 || run.size > memory_size ||
            run.place - base > memory_size - run.size || size > PY_SSIZE_T_MAX / 4)
            return -1;
        size += run.size;
    }
    return (Py_ssize_t)size;
}

void write_runs(uint8_t *at, const uint8_t *memory, int64_t base, Span runs)
{
    for (Py_ssize_t i = 0; i < runs.size; i += sizeof(Run)) {
        Run run = run_at(runs, i);
        at = write_span(at, (Span){memory + (run.place - base), (Py_ssize_t)run.size});
    }
}

static PyObject *copied(const uint8_t *memory, Py_ssize_t memory_size, int64_t base, Span runs)
{
    Py_ssize_t size = size_of_runs(runs, base, memory_size);
    if (size < 0)
        return Py_NewRef(Py_None);
    PyObject *found = PyBytes_FromStringAndSize(NULL, size);
    if (found == NULL)
        return NULL;
    write_runs((uint8_t *)PyBytes_AsString(found), memory, base, runs);
    return found;
}

PyObject *copy_runs(PyObject *const *args)
{
    Span runs;
    int64_t base = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred() || span_of_runs(args[2], &runs) < 0)
        return NULL;
    if (base < 0) {
        PyErr_SetString(PyExc_ValueError, "a place in front of all");
        return NULL;
    }
    Py_buffer memory;
    if (PyObject_GetBuffer(args[0], &memory, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *found = copied(memory.buf, memory.len, base, runs);
    PyBuffer_Release(&memory);
    return found;
}
