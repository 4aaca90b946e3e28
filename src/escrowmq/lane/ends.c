/* Lays out what a stretch of ENDs has stored and answered, as broker/fast/short_ends does for each alone:
   the messages of halves that are committed. It changes nothing that it was given: either all of an
   END is in what it returns, or it was not begun, and is served by whoever called this. */

#include "ends.h"
#include "record.h"

#define NOTE_SIZE 6

/* What lay_out_ends is given besides what lay_out_sends is. */
typedef struct {
    Span log; /* bytes of the log */
    PyObject *starts;
    int64_t odd_flags, commit_flag;
    Span reply[2][2]; /* in front of the number and behind it, of a rollback and of a commit */
    Pile notes;
} Halves;

/* A half in the log. */
typedef struct {
    const uint8_t *head;
    Span body, properties;
    Message sent; /* its properties, as its sender wrote them */
    Place *place;
} Half;

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
        !span_equals(sent->value[plan->group], end->shape->group) ||
        !find_keys(sent, (int)work->keys_max))
        return 0;
    return find_place(work, (Span){key_end + 1, last - key_end - 1}, &half->place);
}

/* -- their messages ---------------------------------------------------------------------------- */

/* The message of a half at the end of all records: as take_apart returns. */
static int add_final(Work *work, const Halves *halves, const Half *half, const End *end)
{
    Place *place = half->place;
    Tail *tail = &place->tail;
    const uint8_t *head = half->head;
    int64_t size = HEAD_SIZE + half->body.size + tail->topic.size + 2 + half->properties.size;
    if (!place->has_tail || half->body.size > work->body_size_max || size > INT32_MAX ||
        half->properties.size > work->properties_size_max ||
        size > work->room_end - work->log_end)
        return 0;
    uint8_t *at = pile_room(&work->records, (Py_ssize_t)size);
    if (at == NULL)
        return -1;
    at = write_32(at, (uint32_t)size);
    at = write_32(at, tail->magic);
    at = write_32(at, read_32(head + CRC_AT));
    at = write_32(at, (uint32_t)tail->queue_id);
    at = write_span(at, (Span){head + FLAG_AT, 4});
    at = write_64(at, tail->queue_offset);
    at = write_64(at, work->log_end);
    at = write_32(at, read_32(head + SYS_FLAG_AT) | (uint32_t)halves->commit_flag);
    at = write_span(at, (Span){head + BORN_AT, BORN_SIZE});
    at = write_64(at, work->stored_ms);
    at = write_span(at, work->store_host);
    at = write_span(at, (Span){head + TIMES_AT, 4});
    at = write_64(at, end->log_offset);
    at = write_32(at, (uint32_t)half->body.size);
    at = write_span(at, half->body);
    at = write_span(at, tail->topic);
    at = write_16(at, (uint32_t)half->properties.size);
    at = write_span(at, half->properties);
    work->records.size += (Py_ssize_t)size;
    assert(at == work->records.bytes + work->records.size);
    if (add_unit(tail, work->log_end, size, tags_code_of(&half->sent)) < 0 ||
        add_keys(work, tail, &half->sent, work->log_end) < 0)
        return -1;
    work->log_end += size;
    return 1;
}

/* How it ended, whether nobody is to be told, the number; and the reply. */
static int add_note(Work *work, Halves *halves, const End *end)
{
    const EndShape *shape = end->shape;
    uint8_t *at = pile_room(&halves->notes, NOTE_SIZE);
    if (at == NULL)
        return -1;
    *at++ = (uint8_t)shape->is_commit;
    *at++ = (uint8_t)shape->is_one_way;
    write_span(at, end->opaque);
    halves->notes.size += NOTE_SIZE;
    if (shape->is_one_way)
        return 1;
    const Span *reply = halves->reply[shape->is_commit];
    Py_ssize_t size = reply[0].size + end->opaque.size + reply[1].size;
    at = pile_room(&work->replies, size);
    if (at == NULL)
        return -1;
    write_span(write_span(write_span(at, reply[0]), end->opaque), reply[1]);
    work->replies.size += size;
    return 1;
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
    for (int nth = 0; nth < 4; nth++)
        if (span_at(rules, 2 + nth, &halves->reply[nth / 2][nth % 2]) < 0)
            return -1;
    return 0;
}

static PyObject *answer(Work *work, const Halves *halves, Py_ssize_t at)
{
    PyObject *tails = PyList_New(0), *found = NULL;
    int failed = tails == NULL;
    for (int nth = 0; !failed && nth < work->places_count; nth++)
        failed = add_pair(tails, work->place[nth].tail.tail, work->place[nth].tail.units) < 0;
    if (!failed)
        found = Py_BuildValue("(nNNNOO)", at, bytes_of_pile(&work->records),
                              bytes_of_pile(&work->replies), bytes_of_pile(&halves->notes), tails,
                              work->keys);
    Py_XDECREF(tails);
    return found;
}

const char lay_out_ends_doc[] =
    "lay_out_ends(data, at, size_max, shapes, plans, places, moment, log, starts, rules)\n\n"
    "See lane/native.py.";

PyObject *lay_out_ends(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    EndFrames frames;
    Work work;
    Halves halves;
    End end;
    PyObject *found = NULL;
    int is_put = 1;
    if (count != 10 || !PyDict_Check(args[4]) || !PyDict_Check(args[5])) {
        PyErr_SetString(PyExc_TypeError, "data, at, size_max, shapes, plans, places, moment, log, "
                                         "starts, rules");
        return NULL;
    }
    if (frames_begin(&frames, args) < 0 || halves_begin(&halves, args[7], args[8], args[9]) < 0)
        return NULL;
    if (work_begin(&work, NULL, args[4], args[5], args[6]) < 0)
        is_put = -1;
    else if (!work.has_half_tail || work.half_mark.size == 0)
        is_put = 0;
    const uint8_t *served_end = frames.at;
    for (Py_ssize_t nth = 0; is_put > 0 && nth < PyList_Size(halves.starts); nth++) {
        is_put = next_end(&frames, &end);
        if (is_put > 0)
            is_put = serve(&work, &halves, nth, &end);
        if (is_put > 0)
            served_end = end.end;
    }
    if (is_put >= 0)
        found = halves.notes.size > 0 ? answer(&work, &halves, served_end - frames.begin)
                                      : Py_NewRef(Py_None);
    work_forget(&work);
    PyMem_Free(halves.notes.bytes);
    return found;
}
