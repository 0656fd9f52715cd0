/*
 * What the resolver inside says to a question (RFC 1035): every name has an address of the name table, whether
 * it exists or not; only the host finds that out, when something is sent there. Pure.
 *
 *   A             the name's address; of localhost 127.0.0.1
 *   PTR           of an address of the table: its name
 *   any other     no data: there is no IPv6 on the way out, and no other record is needed to connect
 *
 * Invariants: nothing is read outside of the question or written outside of the answer; what is no question gets
 * no answer, and what is one and malformed gets FORMERR.
 */
#ifndef PERDURE_DNS_H
#define PERDURE_DNS_H

#include <stddef.h>
#include <stdint.h>

#include "field.h"
#include "name_table.h"

#define DNS_QUESTION_MAX 512u
/* A question and one record; of a PTR a whole name. */
#define DNS_ANSWER_MAX 1024u

/* Bytes of the answer; 0: there is none. */
size_t dns_answer(struct bytes question, struct name_table *names, uint8_t answer[DNS_ANSWER_MAX]);

#endif
