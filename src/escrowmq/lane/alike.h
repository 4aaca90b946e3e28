/* Requests that are alike: the same bytes but for a few values (codec/request_shapes.py). Sends and ENDs, in
   binary form and in JSON, are found in the same way. */

#ifndef ESCROWMQ_LANE_ALIKE_H
#define ESCROWMQ_LANE_ALIKE_H

#include "bytes.h"

#define SHAPES_MAX 16
#define VALUES_MAX 6

/* Which value one is (codec/request_shapes.RequestKind). A header in JSON has no size of its fields. */
enum { OPAQUE, FIELDS_SIZE, OWN };
enum { QUEUE = OWN, BORN, PROPERTIES, SIGNATURE };
enum { HALF_QUEUE_OFFSET = OWN, HALF_LOG_OFFSET, HALF_KEY, MESSAGE_ID };

/* A request except its values (lane/native.LaneShape). */
typedef struct {
    int is_json, count; /* count: of the values */
    Span piece[VALUES_MAX + 1];
    int order[VALUES_MAX];
    Span name; /* the topic of a send and a zero, the group of an END */
    int32_t flag, sys_flag, half_sys_flag, reconsume_times;
    int is_one_way, may_be_plain, may_be_half, is_batch, wants_id, is_commit;
} Shape;

typedef struct {
    const Shape *shape;
    const uint8_t *end; /* of its frame */
    Span value[VALUES_MAX], body;
} Request;

/* The bytes with requests, and the shapes, which are read when they are tried: most requests have
   the same one as the request before. Nothing is set before it is used. */
typedef struct {
    const uint8_t *begin, *at, *end;
    int64_t size_max, left; /* left: how many requests are taken at most */
    PyObject *given;        /* a list of shapes */
    int count, last;
    Pile texts; /* what JSON says of the last request */
    uint8_t is_read[SHAPES_MAX];
    Shape shape[SHAPES_MAX];
} Frames;

/* The arguments data, at, size_max, shapes, and count_max, which may be NULL: 0, or -1 with an
   exception. In both cases frames_forget gives back what is held. */
int frames_begin(Frames *frames, PyObject *const *args, PyObject *count_max);
void frames_forget(Frames *frames);

/* The next request, after which `at` is moved: 1; 0 when none is left, or it has no known shape, -1
   with an exception. */
int next_request(Frames *frames, Request *found);

#endif
