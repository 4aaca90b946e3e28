/* CRC-32 of bodies, eight bytes a step: a library to link with would be one more thing that may be
   absent where this is built. */

#include "bytes.h"

#define POLYNOMIAL 0xEDB88320u

static uint32_t tables[8][256];

void crc_prepare(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t rest = byte;
        for (int bit = 0; bit < 8; bit++)
            rest = rest & 1 ? rest >> 1 ^ POLYNOMIAL : rest >> 1;
        tables[0][byte] = rest;
    }
    for (int nth = 1; nth < 8; nth++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t rest = tables[nth - 1][byte];
            tables[nth][byte] = rest >> 8 ^ tables[0][rest & 0xFF];
        }
}

uint32_t crc_of(Span data)
{
    const uint8_t *at = data.at, *end = data.at + data.size;
    uint32_t rest = 0xFFFFFFFFu;
    for (; end - at >= 8; at += 8) {
        rest ^= at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        rest = tables[7][rest & 0xFF] ^ tables[6][rest >> 8 & 0xFF] ^
               tables[5][rest >> 16 & 0xFF] ^ tables[4][rest >> 24] ^ tables[3][at[4]] ^
               tables[2][at[5]] ^ tables[1][at[6]] ^ tables[0][at[7]];
    }
    for (; at < end; at++)
        rest = rest >> 8 ^ tables[0][(rest ^ *at) & 0xFF];
    return ~rest;
}
