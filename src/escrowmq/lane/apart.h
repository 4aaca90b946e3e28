/* What apart.c finds in a send request, and sends.c lays out. */

#ifndef ESCROWMQ_LANE_APART_H
#define ESCROWMQ_LANE_APART_H

#include "bytes.h"

/* Every table here has one of these bounds; what is beyond them is left to the plain lane. */
#define SHAPES_MAX 16
#define PLANS_MAX 4
#define NAMES_MAX 32
#define KEYS_MAX 16

/* Queue, time, properties, and number: they differ between requests in JSON that are alike. */
#define JSON_VARIES 4
#define JSON_OPAQUE_VALUE 3

/* A send request but for what differs between those that are alike (codec/request_shapes.SendShape). */
typedef struct {
    int is_json;
    Span piece[JSON_VARIES + 1]; /* in JSON: what stands around the values, */
    int order[JSON_VARIES];      /* and which of them come first */
    Span front, suffix, topic;
    Py_ssize_t queue_at, queue_end, born_at, born_end;
    int32_t flag, sys_flag, half_sys_flag, reconsume_times;
    int is_one_way, may_be_plain, may_be_half, is_batch;
} Shape;

/* Where the values are that the broker looks at (codec/request_shapes.Plan), for names in this order. */
typedef struct {
    PyObject *names; /* a tuple of bytes, which keeps the spans alive */
    Span name[NAMES_MAX];
    int count;
    int key, tags, keys, is_half, group; /* the nth property; -1 where there is none */
} Plan;

/* A request that was taken apart. */
typedef struct {
    const Shape *shape;
    const Plan *plan;
    const uint8_t *end; /* of its frame */
    Span opaque, queue, born, properties, body;
    int has_last_separator;
    Span name[NAMES_MAX], value[NAMES_MAX];
    int count; /* properties */
    Span key[KEYS_MAX];
    int keys_count;
    int64_t queue_id, born_ms;
} Message;

/* What is known of the requests of a connection, as it was given, and read once it is needed. */
typedef struct {
    PyObject *shapes, *plans; /* a list of tuples; a dictionary by names */
    Shape shape[SHAPES_MAX];
    uint8_t is_read[SHAPES_MAX];
    int shapes_count, last_shape;
    Plan plan[PLANS_MAX];
    int plans_count, next_plan;
    Pile texts; /* what JSON says of the last request */
} Known;

/* What a message's unit says of its tags. */
static inline int64_t tags_code_of(const Message *message)
{
    int tags = message->plan->tags;
    return tags < 0 ? 0 : (int32_t)java_hash(0, message->value[tags]);
}

/* A frame with a binary header without a remark: what stands before its fields has so many bytes,
   its own number is among them. */
#define FIXED_SIZE 29
#define OPAQUE_AT 13
#define BEHIND_OPAQUE 17

/* Whether a whole one begins there, and how long it and what stands before its body are. */
static inline int is_frame(const uint8_t *at, const uint8_t *end, int64_t size_max,
                           Py_ssize_t *header_end, Py_ssize_t *frame_size)
{
    if (end - at < FIXED_SIZE || at[4] != 1)
        return 0;
    int64_t size = read_32(at), header_size = read_32(at + 4) & 0xFFFFFF;
    if (size > end - at - 4 || 4 + header_size > size || size + 4 > size_max ||
        header_size < FIXED_SIZE - 8)
        return 0;
    *header_end = 8 + (Py_ssize_t)header_size;
    *frame_size = 4 + (Py_ssize_t)size;
    return 1;
}

/* The same with a header in JSON. */
static inline int is_json_frame(const uint8_t *at, const uint8_t *end, int64_t size_max,
                                Py_ssize_t *header_end, Py_ssize_t *frame_size)
{
    if (end - at < 8 || at[4] != 0)
        return 0;
    int64_t size = read_32(at), header_size = read_32(at + 4);
    if (size > end - at - 4 || 4 + header_size > size || size + 4 > size_max)
        return 0;
    *header_end = 8 + (Py_ssize_t)header_size;
    *frame_size = 4 + (Py_ssize_t)size;
    return 1;
}

/* Whether it is like another one between two places, which both have. */
static inline int is_same(const uint8_t *frame, Span front, Py_ssize_t begin, Py_ssize_t end)
{
    return memcmp(frame + begin, front.at + begin, (size_t)(end - begin)) == 0;
}

void known_begin(Known *known, PyObject *shapes, PyObject *plans);
int known_shapes(Known *known);
void known_forget(Known *known);

/* Each: 1 when it is so; 0 when the request is none to be served here; -1 with an exception. */
int take_apart(Known *known, const uint8_t *at, const uint8_t *end, int64_t size_max,
               Message *found);
int read_properties(Known *known, Message *message);
int matches_json(const Shape *shape, Span header, Pile *texts, Message *found);
int find_keys(Message *message, int keys_max);
int is_number(Span text, int64_t *found);
int is_true(Span text);

/* Numbers and bytes of a tuple; 0, or -1 with an exception. */
int number_at(PyObject *tuple, Py_ssize_t nth, int64_t least, int64_t most, int64_t *found);
int span_at(PyObject *tuple, Py_ssize_t nth, Span *found);

/* 0, or -1 with an exception. */
int read_json_shape(PyObject *pieces, PyObject *order, Shape *shape);

/* Bytes as a tuple, or NULL; a number at the end of a list: 0, or -1. Both with an exception. */
PyObject *tuple_of(const Span *spans, int count);
int append_number(PyObject *list, int64_t number);

#endif
