/* Writes replies, all of them. */

#include "replies.h"
#include "apart.h"

#define BINARY_KIND (1u << 24)
#define FRONT_SIZE 8 /* sizes of frame and header */
#define SIZE_SIZE 4
#define PIECES_SIZE_MAX 65536

int read_template(PyObject *tuple, int holes, Template *found)
{
    Span *pieces[2 * HOLES_MAX + 5], **next = pieces;
    *next++ = &found->front;
    *next++ = &found->rest;
    for (int nth = 0; nth < holes; nth++)
        *next++ = &found->before[nth];
    *next++ = &found->end;
    for (int nth = 0; nth < holes; nth++)
        *next++ = &found->json_before[nth];
    *next++ = &found->json_opaque;
    *next++ = &found->json_end;
    found->holes = holes;
    Py_ssize_t size = 0;
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != next - pieces) {
        PyErr_Format(PyExc_TypeError, "a reply with %d values has %zd pieces", holes, next - pieces);
        return -1;
    }
    for (Py_ssize_t nth = 0; nth < next - pieces; nth++) {
        if (span_at(tuple, nth, pieces[nth]) < 0)
            return -1;
        if (pieces[nth]->size > PIECES_SIZE_MAX - size) {
            PyErr_SetString(PyExc_ValueError, "the pieces are too long for a header");
            return -1;
        }
        size += pieces[nth]->size;
    }
    return 0;
}

static Py_ssize_t fields_size(const Template *template, const Reply *reply)
{
    Py_ssize_t size = template->end.size;
    for (int nth = 0; nth < reply->count; nth++)
        size += template->before[nth].size + SIZE_SIZE + reply->value[nth].size;
    return size;
}

Py_ssize_t reply_size(const Template *template, const Reply *reply)
{
    Py_ssize_t size = FRONT_SIZE + reply->opaque.size + reply->body_size;
    if (!reply->is_json)
        return size + template->front.size + template->rest.size + SIZE_SIZE +
               fields_size(template, reply);
    for (int nth = 0; nth < reply->count; nth++)
        size += template->json_before[nth].size + reply->value[nth].size;
    return size + template->json_opaque.size + template->json_end.size;
}

uint8_t *write_reply(uint8_t *at, const Template *template, const Reply *reply)
{
    uint32_t size = (uint32_t)reply_size(template, reply);
    uint32_t header_size = size - FRONT_SIZE - (uint32_t)reply->body_size;
    at = write_32(at, size - 4);
    at = write_32(at, (reply->is_json ? 0 : BINARY_KIND) | header_size);
    if (reply->is_json) {
        for (int nth = 0; nth < reply->count; nth++)
            at = write_span(write_span(at, template->json_before[nth]), reply->value[nth]);
        at = write_span(write_span(at, template->json_opaque), reply->opaque);
        return write_span(at, template->json_end);
    }
    at = write_span(write_span(write_span(at, template->front), reply->opaque), template->rest);
    at = write_32(at, (uint32_t)fields_size(template, reply));
    for (int nth = 0; nth < reply->count; nth++) {
        at = write_32(write_span(at, template->before[nth]), (uint32_t)reply->value[nth].size);
        at = write_span(at, reply->value[nth]);
    }
    return write_span(at, template->end);
}
