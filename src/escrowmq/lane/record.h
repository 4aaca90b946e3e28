/* Records of the log: where their fields stand, as codec/record_layout.py has them for hosts of IPv4. */

#ifndef ESCROWMQ_LANE_RECORD_H
#define ESCROWMQ_LANE_RECORD_H

#include "bytes.h"

#define MAGIC_V1 0xDAA320A7u
#define MAGIC_V2 0xDAA320ABu
#define HOSTS_V6 0x30 /* of sysFlag: one of both hosts has an address of IPv6 */
#define BORN_SIZE 16  /* time and host */
#define RECORD_SIZE_MIN 91

enum {
    MAGIC_AT = 4,
    CRC_AT = 8,
    QUEUE_ID_AT = 12,
    FLAG_AT = 16,
    QUEUE_OFFSET_AT = 20,
    LOG_OFFSET_AT = 28,
    SYS_FLAG_AT = 36,
    BORN_AT = 40,
    STORED_AT = 56,
    STORE_HOST_AT = 64,
    TIMES_AT = 72,
    PREPARED_AT = 76,
    BODY_SIZE_AT = 84,
    HEAD_SIZE = 88
};

/* Of a body, as a record says it. */
static inline uint32_t body_crc(Span body)
{
    return crc_of(body) & 0x7FFFFFFF;
}

#endif
