/* What the files of this extension share: numbers in bytes, spans of what was read, and a pile of
   what is written, which grows. */

#ifndef ESCROWMQ_LANE_BYTES_H
#define ESCROWMQ_LANE_BYTES_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "functions.h"

/* Bytes that somebody else keeps alive. */
typedef struct {
    const uint8_t *at;
    Py_ssize_t size;
} Span;

/* The bytes of an object, which keeps them alive: 0, or -1 with an exception. */
static inline int span_of(PyObject *given, Span *found)
{
    char *bytes;
    if (PyBytes_AsStringAndSize(given, &bytes, &found->size) < 0)
        return -1;
    found->at = (const uint8_t *)bytes;
    return 0;
}

static inline int is_ascii(Span text)
{
    for (Py_ssize_t i = 0; i < text.size; i++)
        if (text.at[i] & 0x80)
            return 0;
    return 1;
}

static inline int span_equals(Span one, Span other)
{
    return one.size == other.size &&
           (one.size == 0 || memcmp(one.at, other.at, (size_t)one.size) == 0);
}

static inline uint32_t read_16(const uint8_t *at)
{
    return (uint32_t)at[0] << 8 | at[1];
}

static inline uint32_t read_32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline int64_t read_64(const uint8_t *at)
{
    return (int64_t)((uint64_t)read_32(at) << 32 | read_32(at + 4));
}

static inline uint8_t *write_16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
    return at + 2;
}

static inline uint8_t *write_32(uint8_t *at, uint32_t value)
{
    return write_16(write_16(at, value >> 16), value & 0xFFFF);
}

static inline uint8_t *write_64(uint8_t *at, int64_t value)
{
    uint64_t bits = (uint64_t)value;
    return write_32(write_32(at, (uint32_t)(bits >> 32)), (uint32_t)bits);
}

static inline uint8_t *write_span(uint8_t *at, Span span)
{
    if (span.size > 0)
        memcpy(at, span.at, (size_t)span.size);
    return at + span.size;
}

#define HEX_SIZE 16

static inline uint8_t *write_hex(uint8_t *at, int64_t number)
{
    for (int shift = 60; shift >= 0; shift -= 4)
        *at++ = (uint8_t)"0123456789ABCDEF"[(uint64_t)number >> shift & 15];
    return at;
}

#define NUMBER_SIZE_MAX 20

/* A number as it is written, and how many bytes that are, of NUMBER_SIZE_MAX at most. The C
   library's way took 2 of 100 instructions of a pull's core. */
static inline Py_ssize_t write_digits(uint8_t *at, int64_t number)
{
    uint8_t turned[NUMBER_SIZE_MAX];
    uint64_t left = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    Py_ssize_t count = 0, size = 0;
    do
        turned[count++] = (uint8_t)('0' + left % 10);
    while ((left /= 10) != 0);
    if (number < 0)
        at[size++] = '-';
    while (count > 0)
        at[size++] = turned[--count];
    return size;
}

/* A tuple of these, which are its own from now on. NULL, with an exception and none of them kept,
   when one of them could not be made. */
static inline PyObject *tuple_taking(PyObject *const *items, Py_ssize_t count)
{
    Py_ssize_t nth = 0;
    while (nth < count && items[nth] != NULL)
        nth++;
    PyObject *found = nth == count ? PyTuple_New(count) : NULL;
    for (nth = 0; nth < count; nth++)
        if (found != NULL)
            PyTuple_SetItem(found, nth, items[nth]);
        else
            Py_XDECREF(items[nth]);
    return found;
}

/* Bytes that are written one behind the other. */
typedef struct {
    uint8_t *bytes;
    Py_ssize_t size, room;
} Pile;

/* Room for so many bytes more at the end; NULL, with an exception, when there is no memory. The
   size counts once they are written: the caller adds it. */
static inline uint8_t *pile_room(Pile *pile, Py_ssize_t more)
{
    if (more > PY_SSIZE_T_MAX / 4 - pile->size) {
        PyErr_NoMemory();
        return NULL;
    }
    Py_ssize_t needed = pile->size + more;
    if (needed > pile->room) {
        Py_ssize_t room = needed + needed / 2 + 1024;
        uint8_t *grown = PyMem_Realloc(pile->bytes, (size_t)room);
        if (grown == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        pile->bytes = grown;
        pile->room = room;
    }
    return pile->bytes + pile->size;
}

/* Room for so many bytes more at the end of a bytearray, whose they are; NULL with an exception. */
static inline uint8_t *array_room(PyObject *array, Py_ssize_t more)
{
    Py_ssize_t size = PyByteArray_Size(array);
    if (PyByteArray_Resize(array, size + more) < 0)
        return NULL;
    return (uint8_t *)PyByteArray_AsString(array) + size;
}

static inline PyObject *bytes_of(Span span)
{
    return PyBytes_FromStringAndSize((const char *)span.at, span.size);
}

static inline PyObject *bytes_of_pile(const Pile *pile)
{
    return PyBytes_FromStringAndSize(pile->size ? (const char *)pile->bytes : "", pile->size);
}

/* Java's String.hashCode of ASCII behind what has a hash already. Four at once, since each product
   waits for the one before it. */
static inline uint32_t java_hash(uint32_t hash, Span text)
{
    const uint8_t *at = text.at, *end = text.at + text.size;
    for (; end - at >= 4; at += 4)
        hash = hash * (31u * 31 * 31 * 31) + at[0] * (31u * 31 * 31) + at[1] * (31u * 31) +
               at[2] * 31u + at[3];
    for (; at < end; at++)
        hash = hash * 31 + *at;
    return hash;
}

/* CRC-32 as zlib counts it (crc.c). */
void crc_prepare(void);
uint32_t crc_of(Span data);

#define DECLARED(name, wanted, arguments, where) PyObject *name(PyObject *const *args);
FUNCTIONS(DECLARED)

#endif
