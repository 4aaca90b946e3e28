/* Finds which halves ENDs are about, and lays out what a stretch of them has stored and answered: the
   messages of halves that are committed. It changes nothing that it was given: either all of an END
   is in what it returns, or it was not begun, and takes the general path. */

#include "record.h"
#include "work.h"

#define NOTE_SIZE 7

/* An END that was taken apart. */
typedef struct {
    const Shape *shape;
    const uint8_t *end; /* of its frame */
    Span opaque, key;
    uint32_t number; /* the opaque */
    int64_t queue_offset, log_offset;
} End;

/* What lay_out_ends is given besides what lay_out_sends is. */
typedef struct {
    Span log; /* bytes of the log */
    PyObject *starts;
    int64_t odd_flags, commit_flag;
    Template reply[2]; /* to a rollback, and to a commit */
    Pile notes;
} Halves;

/* A half in the log. */
typedef struct {
    const uint8_t *head;
    Span body, properties;
    Message sent; /* its properties, as its sender wrote them */
    Place *place;
} Half;

/* -- ENDs -------------------------------------------------------------------------------------- */

/* The next one: as next_request returns. It has no body, and its message id is text. */
static int next_end(Frames *frames, End *found)
{
    Request request;
    int is_alike = next_request(frames, &request);
    if (is_alike <= 0)
        return is_alike;
    const Span *value = request.value;
    found->shape = request.shape;
    found->end = request.end;
    found->opaque = value[OPAQUE];
    found->key = value[HALF_KEY];
    int64_t number = 0; /* a request in JSON has one */
    if (!request.shape->is_json)
        number = read_32(found->opaque.at);
    else if (!is_number(found->opaque, &number))
        return 0;
    found->number = (uint32_t)number;
    return request.body.size == 0 && value[MESSAGE_ID].size > 0 && is_ascii(value[MESSAGE_ID]) &&
           is_ascii(found->key) && is_number(value[HALF_QUEUE_OFFSET], &found->queue_offset) &&
           is_number(value[HALF_LOG_OFFSET], &found->log_offset);
}

PyObject *find_ends(PyObject *const *args)
{
    Frames frames;
    End end;
    PyObject *queue_offsets = PyList_New(0), *log_offsets = PyList_New(0), *found = NULL;
    int failed = frames_begin(&frames, args, args[4]) < 0 || queue_offsets == NULL ||
                 log_offsets == NULL;
    int is_one = 1;
    while (!failed && (is_one = next_end(&frames, &end)) > 0)
        failed = append_number(queue_offsets, end.queue_offset) < 0 ||
                 append_number(log_offsets, end.log_offset) < 0;
    if (!failed && is_one >= 0)
        found = PyList_Size(log_offsets) > 0 ? PyTuple_Pack(2, queue_offsets, log_offsets)
                                             : Py_NewRef(Py_None);
    Py_XDECREF(queue_offsets);
    Py_XDECREF(log_offsets);
    frames_forget(&frames);
    return found;
}

/* -- halves ------------------------------------------------------------------------------------ */

/* The record that starts at the nth place, if it is all there and a half as END says. */
static int find_record(const Work *work, const Halves *halves, Py_ssize_t nth, const End *end,
                       Half *found)
{
    PyObject *start = PyList_GetItem(halves->starts, nth);
    if (start == NULL)
        return -1;
    int64_t at = PyLong_AsLongLong(start), size, body_size;
    if (at == -1 && PyErr_Occurred())
        return -1;
    const Tail *tail = &work->half_tail;
    if (at < 0 || at > halves->log.size - HEAD_SIZE)
        return 0;
    const uint8_t *head = halves->log.at + at;
    size = read_32(head);
    body_size = read_32(head + BODY_SIZE_AT);
    int64_t rest_at = HEAD_SIZE + body_size, properties_at = rest_at + tail->topic.size + 2;
    if (size > halves->log.size - at || body_size < 1 || properties_at >= size ||
        read_32(head + MAGIC_AT) != tail->magic || read_64(head + LOG_OFFSET_AT) != end->log_offset ||
        read_64(head + QUEUE_OFFSET_AT) != end->queue_offset ||
        read_32(head + QUEUE_ID_AT) != (uint32_t)tail->queue_id ||
        read_64(head + PREPARED_AT) != 0 ||
        (read_32(head + SYS_FLAG_AT) & (uint32_t)halves->odd_flags) != 0 ||
        memcmp(head + STORE_HOST_AT, work->store_host.at, (size_t)work->store_host.size) != 0 ||
        memcmp(head + rest_at, tail->topic.at, (size_t)tail->topic.size) != 0 ||
        read_16(head + properties_at - 2) != size - properties_at)
        return 0;
    found->head = head;
    found->body = (Span){head + HEAD_SIZE, (Py_ssize_t)body_size};
    found->properties = (Span){head + properties_at, (Py_ssize_t)(size - properties_at)};
    return body_crc(found->body) == read_32(head + CRC_AT);
}

/* Where a mark stands last in a text; -1 where it does not. */
static Py_ssize_t find_last(Span text, Span mark)
{
    for (Py_ssize_t at = text.size - mark.size; at >= 0; at--)
        if (text.at[at] == mark.at[0] && memcmp(text.at + at, mark.at, (size_t)mark.size) == 0)
            return at;
    return -1;
}

/* The queue that the message is for, by what a half keeps of it: as work_place returns. */
static int find_place(Work *work, Span kept, Place **found)
{
    for (int nth = 0; nth < work->places_count; nth++)
        if (span_equals(work->place[nth].half_place, kept)) {
            *found = &work->place[nth];
            return 1;
        }
    PyObject *name = bytes_of(kept);
    if (name == NULL)
        return -1;
    int is_known = work_new_place(work, name, found);
    Py_DECREF(name);
    if (is_known > 0 && !span_equals((*found)->half_place, kept)) {
        PyErr_SetString(PyExc_ValueError, "a place has another name");
        return -1;
    }
    return is_known;
}

/* What the broker has put behind the sender's properties: its own, the key, the queue. */
static int read_half(Work *work, const End *end, Half *half)
{
    Message *sent = &half->sent;
    Span all = half->properties;
    Py_ssize_t mark_at = find_last(all, work->half_mark), sent_size = mark_at - work->suffix.size;
    if (mark_at < 0 || sent_size <= 0 ||
        !span_equals((Span){all.at + sent_size, work->suffix.size}, work->suffix))
        return 0;
    const uint8_t *key_at = all.at + mark_at + work->half_mark.size, *last = all.at + all.size;
    const uint8_t *key_end = memchr(key_at, 2, (size_t)(last - key_at));
    if (key_end == NULL || !span_equals((Span){key_at, key_end - key_at}, end->key))
        return 0;
    sent->properties = (Span){all.at, sent_size};
    int is_read = read_properties(&work->known, sent);
    if (is_read <= 0)
        return is_read;
    const Plan *plan = sent->plan;
    if (!sent->has_last_separator || plan->is_half < 0 || plan->group < 0 ||
        !is_true(sent->value[plan->is_half]) || !span_equals(sent->value[plan->key], end->key) ||
        !span_equals(sent->value[plan->group], end->shape->name) ||
        !find_keys(sent, (int)work->keys_max))
        return 0;
    return find_place(work, (Span){key_end + 1, last - key_end - 1}, &half->place);
}

/* -- their messages ---------------------------------------------------------------------------- */

/* The message of a half at the end of all records: as take_apart returns. */
static int add_final(Work *work, const Halves *halves, const Half *half, const End *end)
{
    Place *place = half->place;
    const uint8_t *from = half->head;
    uint8_t *at;
    if (!place->has_tail)
        return 0;
    Head head = {half->body, {from + BORN_AT, BORN_SIZE}, read_32(from + CRC_AT),
                 read_32(from + FLAG_AT), read_32(from + SYS_FLAG_AT) | (uint32_t)halves->commit_flag,
                 read_32(from + TIMES_AT), end->log_offset};
    int64_t size = begin_record(work, &place->tail, &head, half->properties.size, &at);
    if (size <= 0)
        return (int)size;
    write_span(at, half->properties);
    return lead_to_record(work, &place->tail, &half->sent, size) < 0 ? -1 : 1;
}

/* How it ended, whether nobody is to be told, whether it is in JSON, its number; and the reply. */
static int add_note(Work *work, Halves *halves, const End *end)
{
    const Shape *shape = end->shape;
    uint8_t *at = pile_room(&halves->notes, NOTE_SIZE);
    if (at == NULL)
        return -1;
    *at++ = (uint8_t)shape->is_commit;
    *at++ = (uint8_t)shape->is_one_way;
    *at++ = (uint8_t)shape->is_json;
    write_32(at, end->number);
    halves->notes.size += NOTE_SIZE;
    if (shape->is_one_way)
        return 1;
    Reply reply = {shape->is_json, 0, end->opaque, {{NULL, 0}}, 0};
    return add_reply(work, &halves->reply[shape->is_commit], &reply) < 0 ? -1 : 1;
}

static int serve(Work *work, Halves *halves, Py_ssize_t nth, const End *end)
{
    Half half;
    int is_put = find_record(work, halves, nth, end, &half);
    if (is_put > 0)
        is_put = read_half(work, end, &half);
    if (is_put > 0 && end->shape->is_commit)
        is_put = add_final(work, halves, &half, end);
    return is_put > 0 ? add_note(work, halves, end) : is_put;
}

/* -- all of it --------------------------------------------------------------------------------- */

static int halves_begin(Halves *halves, PyObject *log, PyObject *starts, PyObject *rules)
{
    memset(halves, 0, sizeof *halves);
    if (!PyList_Check(starts) || !PyTuple_Check(rules)) {
        PyErr_SetString(PyExc_TypeError, "places are a list, rules a tuple");
        return -1;
    }
    halves->starts = starts;
    if (span_of(log, &halves->log) < 0 ||
        number_at(rules, 0, 0, UINT32_MAX, &halves->odd_flags) < 0 ||
        number_at(rules, 1, 0, INT32_MAX, &halves->commit_flag) < 0)
        return -1;
    for (int nth = 0; nth < 2; nth++) {
        PyObject *pieces = PyTuple_GetItem(rules, 2 + nth);
        if (pieces == NULL || read_template(pieces, 0, &halves->reply[nth]) < 0)
            return -1;
    }
    return 0;
}

static PyObject *answer(Work *work, const Halves *halves, Py_ssize_t at)
{
    PyObject *tails = tails_of(work);
    if (tails == NULL)
        return NULL;
    return Py_BuildValue("(nNNNNO)", at, bytes_of_pile(&work->records),
                         bytes_of_pile(&work->replies), bytes_of_pile(&halves->notes), tails,
                         work->keys);
}

PyObject *lay_out_ends(PyObject *const *args)
{
    Work work;
    Halves halves;
    End end;
    PyObject *found = NULL;
    if (halves_begin(&halves, args[7], args[8], args[9]) < 0)
        return NULL;
    int is_put = work_begin(&work, args, NULL) < 0 ? -1 : 1;
    if (is_put > 0 && (!work.has_half_tail || work.half_mark.size == 0))
        is_put = 0;
    const uint8_t *served_end = work.frames.at;
    for (Py_ssize_t nth = 0; is_put > 0 && nth < PyList_Size(halves.starts); nth++) {
        is_put = next_end(&work.frames, &end);
        if (is_put > 0)
            is_put = serve(&work, &halves, nth, &end);
        if (is_put > 0)
            served_end = end.end;
    }
    if (is_put >= 0)
        found = halves.notes.size > 0 ? answer(&work, &halves, served_end - work.frames.begin)
                                      : Py_NewRef(Py_None);
    work_forget(&work);
    PyMem_Free(halves.notes.bytes);
    return found;
}
