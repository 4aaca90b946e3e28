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

#endif
