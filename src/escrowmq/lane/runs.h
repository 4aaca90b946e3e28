/* Runs: stretches of the log, as base/runs.py keeps them. */

#ifndef ESCROWMQ_LANE_RUNS_H
#define ESCROWMQ_LANE_RUNS_H

#include "bytes.h"

typedef struct {
    int64_t place, size;
} Run;

static inline Run run_at(Span runs, Py_ssize_t at)
{
    Run run;
    memcpy(&run, runs.at + at, sizeof run);
    return run;
}

/* Whole runs: 0, or -1 with an exception. */
static inline int span_of_runs(PyObject *given, Span *found)
{
    if (span_of(given, found) < 0)
        return -1;
    if (found->size % (Py_ssize_t)sizeof(Run) == 0)
        return 0;
    PyErr_SetString(PyExc_ValueError, "these are no whole runs");
    return -1;
}

/* What was chosen of a queue's units. */
typedef struct {
    Pile runs;
    PyObject *offsets; /* a list, once some units between others were left out */
    int64_t first, at; /* queue offsets */
    int64_t count, size;
    int64_t run_start, run_end;
} Chosen;

/* As find_runs is asked for them by its five arguments: 1; 0 when one of them can have been made by
   no writer, -1 with an exception. In all cases forget_chosen gives back what is held. */
int choose_units(PyObject *const *args, Chosen *chosen);
void forget_chosen(Chosen *chosen);

/* The bytes of all runs together; -1 when one of them is not wholly in a memory of that size. */
Py_ssize_t size_of_runs(Span runs, int64_t base, Py_ssize_t memory_size);

/* These bytes, one behind the other. */
void write_runs(uint8_t *at, const uint8_t *memory, int64_t base, Span runs);

#endif
