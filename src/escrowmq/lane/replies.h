/* Replies that differ in a few values (codec/reply_template). */

#ifndef ESCROWMQ_LANE_REPLIES_H
#define ESCROWMQ_LANE_REPLIES_H

#include "bytes.h"

#define HOLES_MAX 3

/* What stands around the values: in binary form in front of the opaque, of the size of all fields,
   of each value, and behind the last one; in JSON in front of each value and of the opaque, and
   behind that. */
typedef struct {
    int holes;
    Span front, rest, before[HOLES_MAX], end;
    Span json_before[HOLES_MAX], json_opaque, json_end;
} Template;

/* The values of one reply; the last fields of a template may be left out where nothing stands
   behind them. Its body is written by the caller. */
typedef struct {
    int is_json, count;
    Span opaque, value[HOLES_MAX];
    Py_ssize_t body_size;
} Reply;

/* 0, or -1 with an exception. */
int read_template(PyObject *tuple, int holes, Template *found);

/* The bytes of the whole frame, and the frame up to its body: where that is to be written. */
Py_ssize_t reply_size(const Template *template, const Reply *reply);
uint8_t *write_reply(uint8_t *at, const Template *template, const Reply *reply);

#endif
