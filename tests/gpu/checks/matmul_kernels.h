// Two matrix products that we wrote by hand, small and complete: cp.async with mma.sync, TMA with
// wgmma. Tests run them as they are, and with one fault planted at a time.
#pragma once

#include <string>

#include "tests/gpu/checks/bench.h"

namespace outboard::ptx {

// C[16][8] (f32) of bf16 A[16][k], B[8][k] by one warp; two stages of 16 columns. Parameters: A, B,
// C, k. A stage is 768 bytes: 16 rows of A and 8 rows of B of 32 bytes each; each half row is
// swapped in odd groups of 4 rows, so that ldmatrix meets no bank twice.
inline std::string MmaKernel() {
  return KernelText({".u64", ".u64", ".u64", ".u32"}, R"(
ld.param.u64 %d1, [p0];
ld.param.u64 %d2, [p1];
ld.param.u64 %d3, [p2];
ld.param.u32 %r1, [p3];
mov.u32 %r2, %tid.x;
mov.u32 %r3, tiles;
// This lane copies 16 bytes of A: row lane / 2, half lane % 2; lanes below 16 the same of B.
shr.u32 %r4, %r2, 1;
and.b32 %r5, %r2, 1;
shr.u32 %r6, %r4, 2;
xor.b32 %r6, %r6, %r5;
and.b32 %r6, %r6, 1;
shl.b32 %r7, %r4, 5;
shl.b32 %r8, %r6, 4;
add.s32 %r7, %r7, %r8;
add.s32 %r7, %r7, %r3;
mul.lo.s32 %r9, %r4, %r1;
shl.b32 %r10, %r5, 3;
add.s32 %r9, %r9, %r10;
mul.wide.s32 %d4, %r9, 2;
add.s64 %d5, %d1, %d4;
add.s64 %d6, %d2, %d4;
setp.lt.u32 %p1, %r2, 16;
// ldmatrix: A's lane % 16 is the row and lane / 16 the half, B's lane % 8 and lane / 8 % 2.
and.b32 %r11, %r2, 15;
shr.u32 %r12, %r2, 4;
shr.u32 %r13, %r11, 2;
xor.b32 %r13, %r13, %r12;
and.b32 %r13, %r13, 1;
shl.b32 %r14, %r11, 5;
shl.b32 %r15, %r13, 4;
add.s32 %r14, %r14, %r15;
add.s32 %r14, %r14, %r3;
and.b32 %r16, %r2, 7;
shr.u32 %r17, %r2, 3;
shr.u32 %r18, %r16, 2;
xor.b32 %r18, %r18, %r17;
and.b32 %r18, %r18, 1;
shl.b32 %r19, %r16, 5;
shl.b32 %r20, %r18, 4;
add.s32 %r19, %r19, %r20;
add.s32 %r19, %r19, %r3;
mov.f32 %f1, 0f00000000;
mov.f32 %f2, %f1;
mov.f32 %f3, %f1;
mov.f32 %f4, %f1;
mov.u32 %r21, 0;
mov.u32 %r22, 0;
cp.async.cg.shared.global [%r7], [%d5], 16;
@%p1 cp.async.cg.shared.global [%r7+512], [%d6], 16;
cp.async.commit_group;
LOOP:
add.s32 %r23, %r21, 16;
setp.ge.s32 %p2, %r23, %r1;
@%p2 bra NOCOPY;
add.s64 %d5, %d5, 32;
add.s64 %d6, %d6, 32;
xor.b32 %r24, %r22, 1;
mad.lo.s32 %r25, %r24, 768, %r7;
cp.async.cg.shared.global [%r25], [%d5], 16;
@%p1 cp.async.cg.shared.global [%r25+512], [%d6], 16;
NOCOPY:
cp.async.commit_group;
cp.async.wait_group 1;
bar.sync 0;
mad.lo.s32 %r26, %r22, 768, %r14;
mad.lo.s32 %r27, %r22, 768, %r19;
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r30, %r31, %r32, %r33}, [%r26];
ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r34, %r35}, [%r27+512];
mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4},
  {%r30, %r31, %r32, %r33}, {%r34, %r35}, {%f1, %f2, %f3, %f4};
bar.sync 0;
xor.b32 %r22, %r22, 1;
mov.u32 %r21, %r23;
setp.lt.s32 %p3, %r21, %r1;
@%p3 bra LOOP;
shr.u32 %r36, %r2, 2;
and.b32 %r37, %r2, 3;
shl.b32 %r38, %r36, 3;
shl.b32 %r39, %r37, 1;
add.s32 %r38, %r38, %r39;
mul.wide.s32 %d7, %r38, 4;
add.s64 %d8, %d3, %d7;
st.global.v2.f32 [%d8], {%f1, %f2};
st.global.v2.f32 [%d8+256], {%f3, %f4};
)",
                    ".shared .align 128 .b8 tiles[1536];");
}

// C[64][64] (f32) of bf16 A[64][k], B[64][k]: warpgroup 0 copies by TMA, warpgroup 1 multiplies.
// Two stages of 64 columns in swizzles of 128 bytes. Parameters: maps of A and B, C, k / 64.
// Dynamic shared memory: 33,024 bytes.
inline constexpr uint32_t kWgmmaSharedBytes = 2 * 16384 + 256;
inline std::string WgmmaKernel() {
  std::string accumulators;
  for (int i = 0; i < 32; ++i) absl::StrAppend(&accumulators, i > 0 ? ", " : "", "%f", 100 + i);
  std::string zeros, stores;
  for (int i = 0; i < 32; ++i) absl::StrAppend(&zeros, "mov.f32 %f", 100 + i, ", 0f00000000;\n");
  // Accumulators 4j to 4j + 3: columns 8j + 2 (lane % 4) and the next, of row lane / 4 and of the
  // row 8 below.
  for (int j = 0; j < 8; ++j)
    for (int half = 0; half < 2; ++half)
      absl::StrAppend(&stores, "st.global.v2.f32 [%d9+", 32 * j + half * 8 * 256, "], {%f",
                      100 + 4 * j + 2 * half, ", %f", 101 + 4 * j + 2 * half, "};\n");
  std::string products;
  for (int step = 0; step < 4; ++step) {
    absl::StrAppend(&products, "add.s64 %d14, %d12, ", 2 * step, ";\nadd.s64 %d15, %d13, ",
                    2 * step, ";\n");
    absl::StrAppend(&products, "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {",
                    accumulators, "}, %d14, %d15, ", step == 0 ? "%p8" : "%p9", ", 1, 1, 0, 0;\n");
  }
  const std::string body =
      absl::StrReplaceAll(R"(
ld.param.u64 %d3, [p2];
ld.param.u32 %r1, [p3];
mov.u32 %r2, %tid.x;
shr.u32 %r3, %r2, 7;
mov.u32 %r4, tiles;
add.s32 %r5, %r4, 32768;
setp.ne.s32 %p1, %r2, 0;
@%p1 bra READY;
mbarrier.init.shared::cta.b64 [%r5], 1;
mbarrier.init.shared::cta.b64 [%r5+8], 1;
mbarrier.init.shared::cta.b64 [%r5+16], 128;
mbarrier.init.shared::cta.b64 [%r5+24], 128;
fence.mbarrier_init.release.cluster;
READY:
bar.sync 0;
mov.u32 %r10, 0;
mov.u32 %r11, 0;
mov.u32 %r12, 0;
setp.ne.s32 %p2, %r3, 0;
@%p2 bra CONSUMER;
setmaxnreg.dec.sync.aligned.u32 40;
@%p1 bra DONE;
mov.b64 %d1, p0;
cvta.param.u64 %d1, %d1;
mov.b64 %d2, p1;
cvta.param.u64 %d2, %d2;
xor.b32 %r12, %r12, 1;
PRODUCE:
shl.b32 %r13, %r11, 3;
add.s32 %r14, %r5, %r13;
EMPTY:
mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r14+16], %r12;
@!%p3 bra EMPTY;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r14], 16384;
shl.b32 %r15, %r11, 14;
add.s32 %r16, %r4, %r15;
add.s32 %r17, %r16, 8192;
shl.b32 %r18, %r10, 6;
mov.u32 %r19, 0;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
  [%r16], [%d1, {%r18, %r19}], [%r14];
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
  [%r17], [%d2, {%r18, %r19}], [%r14];
xor.b32 %r11, %r11, 1;
setp.eq.s32 %p4, %r11, 0;
selp.u32 %r20, 1, 0, %p4;
xor.b32 %r12, %r12, %r20;
add.s32 %r10, %r10, 1;
setp.lt.s32 %p5, %r10, %r1;
@%p5 bra PRODUCE;
bra DONE;
CONSUMER:
setmaxnreg.inc.sync.aligned.u32 152;
$ZEROS
setp.ne.s32 %p9, %r3, 0;
CONSUME:
shl.b32 %r13, %r11, 3;
add.s32 %r14, %r5, %r13;
FULL:
mbarrier.try_wait.parity.shared::cta.b64 %p6, [%r14], %r12;
@!%p6 bra FULL;
shl.b32 %r15, %r11, 14;
add.s32 %r16, %r4, %r15;
shr.u32 %r17, %r16, 4;
and.b32 %r17, %r17, 16383;
cvt.u64.u32 %d10, %r17;
mov.b64 %d11, 0x4000004000010000;
or.b64 %d12, %d10, %d11;
add.s64 %d13, %d12, 512;
setp.ne.s32 %p8, %r10, 0;
wgmma.fence.sync.aligned;
$PRODUCTS
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
mbarrier.arrive.shared::cta.b64 _, [%r14+16];
xor.b32 %r11, %r11, 1;
setp.eq.s32 %p4, %r11, 0;
selp.u32 %r20, 1, 0, %p4;
xor.b32 %r12, %r12, %r20;
add.s32 %r10, %r10, 1;
setp.lt.s32 %p5, %r10, %r1;
@%p5 bra CONSUME;
and.b32 %r21, %r2, 127;
shr.u32 %r22, %r21, 5;
and.b32 %r23, %r21, 31;
shl.b32 %r24, %r22, 4;
shr.u32 %r25, %r23, 2;
add.s32 %r24, %r24, %r25;
and.b32 %r26, %r23, 3;
shl.b32 %r26, %r26, 1;
mad.lo.s32 %r27, %r24, 64, %r26;
mul.wide.s32 %d8, %r27, 4;
add.s64 %d9, %d3, %d8;
$STORES
DONE:
)",
                          {{"$ZEROS", zeros}, {"$PRODUCTS", products}, {"$STORES", stores}});
  return KernelText({".align 64 .b8", ".align 64 .b8", ".u64", ".u32"}, body,
                    ".extern .shared .align 1024 .b8 tiles[];",
                    ".maxntid 256, 1, 1\n.minnctapersm 1");
}

// The products' operands and expected results, and one launch.
struct MmaRun {
  explicit MmaRun(const std::string& text, MachineOptions options = {}) : bench(text, options) {
    a = BfloatMatrix(16 * kDepth, 1);
    b = BfloatMatrix(8 * kDepth, 2);
    c = bench.memory.Allocate(16 * 8 * 4);
    bench.Argument(bench.Put(a));
    bench.Argument(bench.Put(b));
    bench.Argument(c);
    bench.Argument(static_cast<uint32_t>(kDepth));
    status = bench.Launch(1, 32);
  }
  bool Correct() { return bench.Take<float>(c, 16 * 8) == ProductOf(a, b, 16, 8, kDepth); }

  static constexpr size_t kDepth = 64;
  Bench bench;
  std::vector<uint16_t> a, b;
  uint64_t c = 0;
  absl::Status status;
};
struct WgmmaRun {
  explicit WgmmaRun(const std::string& text, MachineOptions options = {}) : bench(text, options) {
    a = BfloatMatrix(64 * kDepth, 3);
    b = BfloatMatrix(64 * kDepth, 4);
    c = bench.memory.Allocate(64 * 64 * 4);
    bench.Argument(MapOf(bench.Put(a), kDepth, 64, 64, 64, 2, 3));
    bench.Argument(MapOf(bench.Put(b), kDepth, 64, 64, 64, 2, 3));
    bench.Argument(c);
    bench.Argument(static_cast<uint32_t>(kDepth / 64));
    bench.config.shared_bytes = kWgmmaSharedBytes;
    status = bench.Launch(1, 256);
  }
  bool Correct() { return bench.Take<float>(c, 64 * 64) == ProductOf(a, b, 64, 64, kDepth); }

  static constexpr size_t kDepth = 320;
  Bench bench;
  std::vector<uint16_t> a, b;
  uint64_t c = 0;
  absl::Status status;
};

}  // namespace outboard::ptx
