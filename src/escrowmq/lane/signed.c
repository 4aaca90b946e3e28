/* Finds what is signed in a stretch of send requests, so that it can be verified before they are laid
   out. */

#include "apart.h"

/* Which shape it has, and what varies of what is signed: 0, or -1 with an exception. */
static int add_signed(PyObject *list, const Frames *frames, const Request *request)
{
    const Span *value = request->value;
    PyObject *one = tuple_taking(
        (PyObject *[]){PyLong_FromSsize_t(request->shape - frames->shape), bytes_of(value[QUEUE]),
                       bytes_of(value[BORN]), bytes_of(value[PROPERTIES]),
                       bytes_of(value[SIGNATURE]), bytes_of(request->body)},
        6);
    int done = one == NULL ? -1 : PyList_Append(list, one);
    Py_XDECREF(one);
    return done;
}

PyObject *find_signed_sends(PyObject *const *args)
{
    Frames frames;
    Request request;
    PyObject *found = frames_begin(&frames, args, args[4]) < 0 ? NULL : PyList_New(0);
    while (found != NULL) {
        int is_one = next_request(&frames, &request);
        if (is_one == 0 || request.value[SIGNATURE].size == 0)
            break;
        if (is_one < 0 || add_signed(found, &frames, &request) < 0)
            Py_CLEAR(found);
    }
    frames_forget(&frames);
    return found;
}
