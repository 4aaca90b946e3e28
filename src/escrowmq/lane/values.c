/* Numbers and bytes as they come in, from Python and in requests, and as they go back. */

#include "apart.h"

#define DIGITS_MAX 18

int number_at(PyObject *tuple, Py_ssize_t nth, int64_t least, int64_t most, int64_t *found)
{
    PyObject *item = PyTuple_GetItem(tuple, nth);
    if (item == NULL)
        return -1;
    *found = PyLong_AsLongLong(item);
    if (*found == -1 && PyErr_Occurred())
        return -1;
    if (*found < least || *found > most) {
        PyErr_Format(PyExc_ValueError, "number %zd is out of range", nth);
        return -1;
    }
    return 0;
}

int span_at(PyObject *tuple, Py_ssize_t nth, Span *found)
{
    PyObject *item = PyTuple_GetItem(tuple, nth);
    return item == NULL ? -1 : span_of(item, found);
}

/* A number as clients write it: other forms mean the same, or nothing, and are read elsewhere. */
int is_number(Span text, int64_t *found)
{
    if (text.size < 1 || text.size > DIGITS_MAX || (text.at[0] == '0' && text.size > 1))
        return 0;
    int64_t number = 0;
    for (Py_ssize_t i = 0; i < text.size; i++) {
        if (text.at[i] < '0' || text.at[i] > '9')
            return 0;
        number = 10 * number + (text.at[i] - '0');
    }
    *found = number;
    return 1;
}

PyObject *tuple_of(const Span *spans, int count)
{
    PyObject *made = PyTuple_New(count);
    for (int nth = 0; made != NULL && nth < count; nth++) {
        PyObject *one = bytes_of(spans[nth]);
        if (one == NULL || PyTuple_SetItem(made, nth, one) < 0)
            Py_CLEAR(made);
    }
    return made;
}

int append_number(PyObject *list, int64_t number)
{
    PyObject *made = PyLong_FromLongLong(number);
    int done = made == NULL ? -1 : PyList_Append(list, made);
    Py_XDECREF(made);
    return done;
}
