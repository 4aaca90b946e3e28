/* What apart.c finds in a send request, and sends.c lays out. */

#ifndef ESCROWMQ_LANE_APART_H
#define ESCROWMQ_LANE_APART_H

#include "alike.h"

/* Every table here has one of these bounds; what is beyond them takes the general path. */
#define PLANS_MAX 4
#define NAMES_MAX 32
#define KEYS_MAX 16

/* Where the values are that the broker looks at (codec/plain_properties.PropertiesPlan), for names in this order. */
typedef struct {
    PyObject *names; /* a tuple of bytes, which keeps the spans alive */
    Span name[NAMES_MAX];
    int count;
    int key, tags, keys, is_half, group; /* the nth property; -1 where there is none */
} Plan;

/* A message: a send request that was taken apart, an entry of a batch, or what a half keeps. */
typedef struct {
    const Shape *shape;
    const Plan *plan;
    const uint8_t *end; /* of its frame */
    Span opaque, queue, properties, body;
    int has_last_separator;
    Span name[NAMES_MAX], value[NAMES_MAX];
    int count; /* properties */
    Span key[KEYS_MAX];
    int keys_count;
    int64_t born_ms;
} Message;

/* Plans for properties, as they were given, and read once they are needed. */
typedef struct {
    PyObject *plans; /* a dictionary by names */
    Plan plan[PLANS_MAX];
    int plans_count, next_plan;
} Known;

/* What a message's unit says of its tags. */
static inline int64_t tags_code_of(const Message *message)
{
    int tags = message->plan->tags;
    return tags < 0 ? 0 : (int32_t)java_hash(0, message->value[tags]);
}

void known_begin(Known *known, PyObject *plans);
void known_forget(Known *known);

/* Each: 1 when it is so; 0 when the request is none to be served here; -1 with an exception. */
int take_apart(Known *known, Frames *frames, Message *found);
int read_properties(Known *known, Message *message);
int find_keys(Message *message, int keys_max);
int is_number(Span text, int64_t *found);
int is_true(Span text);

/* Numbers and bytes of a tuple; 0, or -1 with an exception. */
int number_at(PyObject *tuple, Py_ssize_t nth, int64_t least, int64_t most, int64_t *found);
int span_at(PyObject *tuple, Py_ssize_t nth, Span *found);

/* Bytes as a tuple, or NULL; a number at the end of a list: 0, or -1. Both with an exception. */
PyObject *tuple_of(const Span *spans, int count);
int append_number(PyObject *list, int64_t number);

#endif
