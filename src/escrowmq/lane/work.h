/* What requests are laid out with, as given.c reads it, and what has been made of them so far. */

#ifndef ESCROWMQ_LANE_WORK_H
#define ESCROWMQ_LANE_WORK_H

#include "apart.h"
#include "replies.h"

#define PLACES_MAX 64
#define UNIT_SIZE 20 /* of a consume queue (codec/store_entries.py) */

/* The end of a queue (store/record_run.QueueTail). */
typedef struct {
    PyObject *tail, *units; /* units: a bytearray, once something was put */
    Span topic;
    uint32_t magic, prefix; /* prefix: the hash that keys begin with */
    int32_t queue_id;
    int64_t queue_offset; /* of the next record */
} Tail;

/* A queue that requests name (broker/fast/fast_puts.Target). */
typedef struct {
    PyObject *given, *sizes; /* sizes: a list, once something was sent to it */
    PyObject *target, *topic;  /* lent */
    int64_t queue_id;
    Template reply; /* to what is sent there: ids, queue offset, key */
    Span half_place;
    Span asked_topic, asked_queue; /* by which requests name it */
    int has_tail;
    Tail tail;
} Place;

typedef struct {
    PyObject *places; /* a dictionary by topic and queue, as requests write them */
    int places_count;
    Tail half_tail;
    int has_half_tail;

    int64_t log_end, room_end, stored_ms, body_size_max, properties_size_max, keys_max, halves_max,
        batch_max;
    PyObject *stored_ms_given, *groups, *store_host_given, *born_host_given, *unnamed; /* lent */
    Span store_host, born_host, suffix, half_mark;

    Pile records, replies, ids;
    PyObject *keys, *halves; /* keys: a bytearray (keys.h) */
    PyObject *batches;       /* a list, once there is one */
    int64_t count, one_way_count, halves_count;
    const Message *asking; /* a half whose sender wants a signed id, which Python answers */

    /* From here on nothing is set before it is used: to clear it would take as long as a send. */
    Frames frames;
    Known known;
    Place place[PLACES_MAX];
} Work;

/* Once, before all else: 0, or -1 with an exception. */
int given_prepare(void);

/* The arguments data, at, size_max, shapes, plans, places, moment, and count_max, which may be NULL: 0,
   or -1 with an exception. In both cases work_forget gives back all that is held. */
int work_begin(Work *work, PyObject *const *args, PyObject *count_max);
void work_forget(Work *work);

/* The queues where something was put, and their units: a list of pairs, or NULL with an exception. */
PyObject *tails_of(const Work *work);

/* Where a message is to go: 1; 0 when that is not known, -1 with an exception. */
int work_place(Work *work, const Message *message, Place **found);

/* The same by the name under which it was given. */
int work_new_place(Work *work, PyObject *name, Place **found);

/* What the properties of its record take. */
int64_t properties_size(const Work *work, const Message *message, const Place *half_place);

/* What a record has besides its queue, its place and its properties. */
typedef struct {
    Span body, born; /* born: time and host, as a record has them */
    uint32_t crc, flag, sys_flag, reconsume_times;
    int64_t prepared_at; /* the log offset of the half that it commits, or 0 */
} Head;

/* A record at the end of all others, up to its properties: its size, and where these are to be
   written; 0 when there is no room, -1 with an exception. */
int64_t begin_record(Work *work, const Tail *tail, const Head *head, int64_t properties_size,
                     uint8_t **properties);

/* The record of a message, as begin_record returns. */
int64_t add_record(Work *work, const Tail *tail, const Message *message, const Place *half_place);

/* Its unit and its keys, once it is there: 0, or -1 with an exception. */
int lead_to_record(Work *work, Tail *tail, const Message *message, int64_t size);

/* A whole batch, and what follows from it; as take_apart returns. */
int put_batch(Work *work, Place *place, Message *whole);

/* Messages that were put by one request, to be answered. */
typedef struct {
    Span opaque, key;     /* no key: empty */
    const uint8_t *units; /* of all of them */
    int64_t count, queue_offset;
    int is_json;
} Sent;

/* The reply at the end of all others: 0, or -1 with an exception. */
int answer_sent(Work *work, const Place *place, const Sent *sent);
int add_reply(Work *work, const Template *template, const Reply *reply);

/* Whether the reply to a request can say this key as it is. */
static inline int is_sayable(const Shape *shape, Span key)
{
    for (Py_ssize_t nth = 0; shape->is_json && nth < key.size; nth++) {
        uint8_t one = key.at[nth], letter = one | 0x20;
        if ((one < '0' || one > '9') && (letter < 'a' || letter > 'z'))
            return 0;
    }
    return 1;
}

/* A pair at the end of a list, when there is a second one: 0, or -1 with an exception. */
int add_pair(PyObject *list, PyObject *one, PyObject *other);

#endif
