/*
 * Outflows: a child that makes bytes without end known beforehand, and the stream that they leave on under
 * credit. First a record of the child, which is the RESPONSE; then its bytes as DATA; then its second record,
 * which is the END.
 *
 * Invariants:
 *  O1 Nothing is read from the child's pipe but for the credit at hand: what waits is the pipe.
 *  O2 The END comes after the last byte.
 */
#ifndef PERDURE_OUTFLOW_H
#define PERDURE_OUTFLOW_H

#include "job.h"
#include "request.h"

/* In the child: two records on `answers`, bytes on `bytes`; may end the process at any time. */
typedef void (*outflow_work)(const struct request *request, struct answer_pipe *answers, int bytes);

/* Opens the stream `id` and answers it. */
void outflow_run(uint32_t id, const struct request *request, outflow_work work);

#endif
