/* What ends_apart.c finds in an END, and ends.c lays out. */

#ifndef ESCROWMQ_LANE_ENDS_H
#define ESCROWMQ_LANE_ENDS_H

#include "work.h"

#define VARIES 4 /* values that differ between ENDs that are alike */

/* All of an END but its number, and the half that it is about (codec/request_shapes.EndShape). */
typedef struct {
    Span front, group;
    Py_ssize_t begin[VARIES], end[VARIES]; /* of what differs, in order */
    int queue_offset, log_offset, key;     /* which of these it is */
    int is_commit, is_one_way;
} EndShape;

/* They are read when they are tried. */
typedef struct {
    PyObject *given; /* a list of tuples */
    EndShape shape[SHAPES_MAX];
    uint8_t is_read[SHAPES_MAX];
    int count, last;
} EndShapes;

/* An END that was taken apart. */
typedef struct {
    const EndShape *shape;
    const uint8_t *end; /* of its frame */
    Span opaque, key;
    int64_t queue_offset, log_offset;
} End;

/* The bytes that hold ENDs, as both functions are given them: data, at, size_max, shapes. */
typedef struct {
    const uint8_t *begin, *at, *end;
    int64_t size_max;
    EndShapes shapes;
} EndFrames;

/* 0, or -1 with an exception. */
int frames_begin(EndFrames *frames, PyObject *const *args);

/* The next one, behind which `at` is moved: 1; 0 when it is none to be served here, -1 with an
   exception. */
int next_end(EndFrames *frames, End *found);

#endif
