// Kernels for elf_loader_test: constants, tables of addresses, calls inside and outside.
#include <math.h>
#include <stdint.h>
#include <string.h>

void add_one(void* const* buffers, int64_t begin, int64_t end) {
  const float* in = buffers[0];
  float* out = buffers[1];
  for (int64_t i = begin; i < end; ++i) out[i] = in[i] + 1.0f;
}

static const float kTable[8] = {3, 1, 4, 1, 5, 9, 2, 6};
const float* const kPointers[2] = {kTable, kTable + 4};  // .data.rel.ro: R_X86_64_64

__attribute__((noinline)) static float Helper(float x) { return x * 2.0f; }

void table_and_calls(void* const* buffers, int64_t begin, int64_t end) {
  float* out = buffers[0];
  for (int64_t i = begin; i < end; ++i) out[i] = Helper(kPointers[i / 4][i % 4]) + (float)exp2(i);
}

void copy(void* const* buffers, int64_t begin, int64_t end) {
  memcpy((char*)buffers[1] + begin, (const char*)buffers[0] + begin, (size_t)(end - begin));
}
