/* Which request one repeats: all of its header but a few numbers is the same
   (codec/repeated_requests). */

#include "bytes.h"

#define FRONT_SIZE 8
#define BINARY_KIND (1u << 24)
#define OPAQUE_AT 5
#define OPAQUE_END 9
#define NUMBERS_MAX 4
#define DIGITS_MAX 18

/* Where a number stands in a header, as codec/repeated_requests gives it. */
typedef struct {
    int32_t begin, end;
} Place;

/* A request that others repeat. */
typedef struct {
    Span header;
    Py_ssize_t count;
    Place places[NUMBERS_MAX];
    PyObject *known; /* lent */
} Given;

static int given_of(PyObject *tuple, Given *given)
{
    Span places;
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != 3) {
        PyErr_SetString(PyExc_TypeError, "a header, its numbers' places, and whose they are");
        return -1;
    }
    if (span_of(PyTuple_GetItem(tuple, 0), &given->header) < 0 ||
        span_of(PyTuple_GetItem(tuple, 1), &places) < 0)
        return -1;
    given->known = PyTuple_GetItem(tuple, 2);
    given->count = places.size / (Py_ssize_t)sizeof(Place);
    int are_right = places.size % (Py_ssize_t)sizeof(Place) == 0 && given->count <= NUMBERS_MAX;
    if (are_right)
        memcpy(given->places, places.at, (size_t)places.size);
    Py_ssize_t at = OPAQUE_END;
    for (Py_ssize_t i = 0; are_right && i < given->count; i++) {
        Place place = given->places[i];
        are_right = at <= place.begin && place.begin < place.end &&
                    place.end - place.begin <= DIGITS_MAX;
        at = place.end;
    }
    if (are_right && at <= given->header.size)
        return 0;
    PyErr_SetString(PyExc_ValueError, "a number is not where a header has one");
    return -1;
}

/* -1 when it is not written as clients do. */
static int64_t number_of(const uint8_t *at, Py_ssize_t size)
{
    int64_t number = 0;
    if (*at == '0' && size > 1)
        return -1;
    for (Py_ssize_t i = 0; i < size; i++) {
        if (at[i] < '0' || at[i] > '9')
            return -1;
        number = number * 10 + (at[i] - '0');
    }
    return number;
}

static int is_same(const Given *given, const uint8_t *header)
{
    if (memcmp(given->header.at, header, OPAQUE_AT) != 0)
        return 0;
    Py_ssize_t at = OPAQUE_END;
    for (Py_ssize_t i = 0; i < given->count; i++) {
        Place place = given->places[i];
        if (memcmp(given->header.at + at, header + at, (size_t)(place.begin - at)) != 0)
            return 0;
        at = place.end;
    }
    return memcmp(given->header.at + at, header + at, (size_t)(given->header.size - at)) == 0;
}

/* None where one of the numbers is odd. */
static PyObject *match_of(const Given *given, const uint8_t *header, Py_ssize_t end)
{
    PyObject *numbers = PyList_New(given->count);
    for (Py_ssize_t i = 0; numbers != NULL && i < given->count; i++) {
        Place place = given->places[i];
        int64_t number = number_of(header + place.begin, place.end - place.begin);
        if (number < 0) {
            Py_DECREF(numbers);
            return Py_NewRef(Py_None);
        }
        PyObject *value = PyLong_FromLongLong(number);
        if (value == NULL || PyList_SetItem(numbers, i, value) < 0)
            Py_CLEAR(numbers);
    }
    if (numbers == NULL)
        return NULL;
    PyObject *found[] = {Py_NewRef(given->known),
                         PyLong_FromLong((long)(int32_t)read_32(header + OPAQUE_AT)), numbers,
                         PyLong_FromSsize_t(end)};
    return tuple_taking(found, 4);
}

static PyObject *found_among(PyObject *all, const uint8_t *header, Py_ssize_t size, Py_ssize_t end)
{
    if (!PyList_Check(all)) {
        PyErr_SetString(PyExc_TypeError, "a list of those that are known");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyList_Size(all); i++) {
        Given given;
        if (given_of(PyList_GetItem(all, i), &given) < 0)
            return NULL;
        if (given.header.size == size && is_same(&given, header))
            return match_of(&given, header, end);
    }
    return Py_NewRef(Py_None);
}

PyObject *find_repeated(PyObject *const *args)
{
    Span data;
    if (!PyDict_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "data, at, known by the size of their headers");
        return NULL;
    }
    Py_ssize_t at = span_of(args[0], &data) < 0 ? -1 : PyLong_AsSsize_t(args[1]);
    if (PyErr_Occurred())
        return NULL;
    if (at < 0 || data.size - at < FRONT_SIZE + OPAQUE_END)
        return Py_NewRef(Py_None);
    /* Above the size of a header its kind stands. */
    uint32_t size = read_32(data.at + at + 4) ^ BINARY_KIND;
    if (size > (size_t)(data.size - at - FRONT_SIZE) || size + 4 != read_32(data.at + at))
        return Py_NewRef(Py_None);
    PyObject *key = PyLong_FromUnsignedLong(size);
    PyObject *all = key == NULL ? NULL : PyDict_GetItemWithError(args[2], key);
    Py_XDECREF(key);
    if (all == NULL)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    return found_among(all, data.at + at + FRONT_SIZE, (Py_ssize_t)size,
                       at + FRONT_SIZE + (Py_ssize_t)size);
}
