// Lanes, threads and blocks that meet; memory of every kind; TMA at the borders.
#include "tests/gpu/checks/bench.h"

namespace outboard::ptx {
namespace {

// Runs `body`, which leaves a u32 for each thread in %r10 (%r1 is its number), in one block.
std::vector<uint32_t> ResultsOf(const std::string& body, uint32_t threads,
                                const std::string& data = "", uint32_t grid = 1) {
  const std::string text =
      KernelText({".u64"},
                 absl::StrCat("mov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\n", body,
                              "\nld.param.u64 %d90, [p0];\nmov.u32 %r91, %ntid.x;\n",
                              "mad.lo.s32 %r92, %r2, %r91, %r1;\nmul.wide.u32 %d91, %r92, 4;\n",
                              "add.s64 %d92, %d90, %d91;\nst.global.u32 [%d92], %r10;\n"),
                 data);
  MachineOptions options;
  options.runs = 4;
  Bench bench(text, options);
  const uint64_t out = bench.memory.Allocate(4 * threads * grid);
  bench.Argument(out);
  const absl::Status status = bench.Launch(grid, threads);
  EXPECT_TRUE(status.ok()) << status << text;
  return bench.Take<uint32_t>(out, threads * grid);
}
template <class F>
void ExpectEach(const std::string& body, uint32_t threads, F expected) {
  const std::vector<uint32_t> results =
      ResultsOf(body, threads, ".shared .align 16 .b8 tiles[16];");
  for (uint32_t i = 0; i < threads; ++i) ASSERT_EQ(results[i], expected(i)) << body << " of " << i;
}

TEST(Lanes, Shuffles) {
  ExpectEach("shfl.sync.bfly.b32 %r10, %r1, 5, 31, -1;", 32, [](uint32_t i) { return i ^ 5; });
  ExpectEach("shfl.sync.down.b32 %r10, %r1, 3, 31, -1;", 32,
             [](uint32_t i) { return i + 3 < 32 ? i + 3 : i; });
  ExpectEach("shfl.sync.up.b32 %r10, %r1, 3, 0, -1;", 32,
             [](uint32_t i) { return i >= 3 ? i - 3 : i; });
  ExpectEach("shfl.sync.idx.b32 %r10, %r1, 7, 31, -1;", 32, [](uint32_t) { return 7u; });
  // Segments of 8 lanes: (32 - 8) << 8 | 31.
  ExpectEach("shfl.sync.idx.b32 %r10, %r1, 2, 6175, -1;", 32,
             [](uint32_t i) { return i / 8 * 8 + 2; });
  ExpectEach("shfl.sync.down.b32 %r9|%p1, %r1, 3, 31, -1;\nselp.u32 %r10, 1, 0, %p1;", 32,
             [](uint32_t i) { return uint32_t{i + 3 < 32}; });
}

TEST(Lanes, VotesMatchesAndSums) {
  const std::string odd = "and.b32 %r5, %r1, 1;\nsetp.ne.u32 %p1, %r5, 0;\n";
  ExpectEach(odd + "vote.sync.ballot.b32 %r10, %p1, -1;", 32, [](uint32_t) { return 0xaaaaaaaau; });
  ExpectEach(odd + "vote.sync.any.pred %p2, %p1, -1;\nselp.u32 %r10, 1, 0, %p2;", 32,
             [](uint32_t) { return 1u; });
  ExpectEach(odd + "vote.sync.all.pred %p2, %p1, -1;\nselp.u32 %r10, 1, 0, %p2;", 32,
             [](uint32_t) { return 0u; });
  ExpectEach(odd + "match.any.sync.b32 %r10, %r5, -1;", 32,
             [](uint32_t i) { return i % 2 != 0 ? 0xaaaaaaaau : 0x55555555u; });
  ExpectEach("redux.sync.add.u32 %r10, %r1, -1;", 32, [](uint32_t) { return 496u; });
  ExpectEach("redux.sync.max.s32 %r10, %r1, -1;", 32, [](uint32_t) { return 31u; });
  ExpectEach("elect.sync %r10|%p1, -1;\nselp.u32 %r10, 1, 0, %p1;", 32,
             [](uint32_t i) { return uint32_t{i == 0}; });
}

// Lanes take different ways through nested branches and loops, and meet again.
TEST(Lanes, Divergence) {
  ExpectEach(R"(
mov.u32 %r10, 0;
mov.u32 %r5, 0;
LOOP:
setp.gt.u32 %p1, %r5, %r1;
@%p1 bra DONE;
and.b32 %r6, %r5, 1;
setp.eq.u32 %p2, %r6, 0;
@%p2 bra EVEN;
add.s32 %r10, %r10, 100;
bra NEXT;
EVEN:
add.s32 %r10, %r10, %r5;
NEXT:
add.s32 %r5, %r5, 1;
bra LOOP;
DONE:
bar.sync 0;
)",
             64, [](uint32_t i) {
               uint32_t sum = 0;
               for (uint32_t k = 0; k <= i; ++k) sum += k % 2 != 0 ? 100 : k;
               return sum;
             });
}

TEST(Block, BarriersThatReduce) {
  const std::string small = "setp.lt.u32 %p1, %r1, 37;\n";
  ExpectEach(small + "bar.red.popc.u32 %r10, 0, %p1;", 96, [](uint32_t) { return 37u; });
  ExpectEach(small + "bar.red.or.pred %p2, 1, %p1;\nselp.u32 %r10, 1, 0, %p2;", 96,
             [](uint32_t) { return 1u; });
}

TEST(Block, NamedBarriersOfSomeWarps) {
  // The first warp hands a value to the second, which waits; the third does not take part.
  ExpectEach(R"(
mov.u32 %r3, tiles;
mov.u32 %r10, 9;
shr.u32 %r4, %r1, 5;
setp.eq.u32 %p1, %r4, 2;
@%p1 bra DONE;
setp.eq.u32 %p2, %r4, 1;
@%p2 bra SECOND;
setp.eq.u32 %p3, %r1, 0;
mov.u32 %r5, 77;
@%p3 st.shared.u32 [%r3], %r5;
bar.arrive 3, 64;
bra DONE;
SECOND:
bar.sync 3, 64;
ld.shared.u32 %r10, [%r3];
DONE:
)",
             96, [](uint32_t i) { return i / 32 == 1 ? 77u : 9u; });
}

TEST(Block, AtomicsOfSharedMemory) {
  const std::vector<uint32_t> results = ResultsOf(R"(
mov.u32 %r3, tiles;
setp.eq.u32 %p1, %r1, 0;
mov.u32 %r4, 0;
@%p1 st.shared.u32 [%r3], %r4;
bar.sync 0;
atom.shared.add.u32 %r5, [%r3], %r1;
atom.shared.cas.b32 %r6, [%r3], -1, 0;
bar.sync 0;
ld.shared.u32 %r10, [%r3];
)",
                                                  64, ".shared .align 4 .b8 tiles[16];");
  EXPECT_EQ(results, std::vector<uint32_t>(64, 2016));
}

TEST(Memory, LocalConstantAndGeneric) {
  const std::string data = ".const .align 4 .u32 table[4] = {5, 6, 7, 8};\n";
  const std::vector<uint32_t> results = ResultsOf(R"(
.local .align 8 .b8 depot[16];
mov.u64 %d1, depot;
cvta.local.u64 %d2, %d1;
st.u32 [%d2+4], %r1;
ld.local.u32 %r3, [%d1+4];
and.b32 %r4, %r1, 3;
mul.wide.u32 %d3, %r4, 4;
mov.u64 %d4, table;
add.s64 %d5, %d4, %d3;
ld.const.u32 %r5, [%d5];
add.s32 %r10, %r3, %r5;
)",
                                                  32, data);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(results[i], i + 5 + i % 4);
}

// Each block writes its rank to its neighbour's shared memory.
TEST(Cluster, BlocksReachEachOther) {
  const std::string text = KernelText({".u64"}, R"(
mov.u32 %r1, %cluster_ctarank;
mov.u32 %r2, %tid.x;
mov.u32 %r3, tiles;
xor.b32 %r4, %r1, 1;
mapa.shared::cluster.u32 %r5, %r3, %r4;
setp.eq.u32 %p1, %r2, 0;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
@%p1 st.shared::cluster.u32 [%r5], %r1;
$FIRST
$SECOND
ld.shared.u32 %r6, [%r3];
ld.param.u64 %d1, [p0];
mul.wide.u32 %d2, %r1, 4;
add.s64 %d3, %d1, %d2;
@%p1 st.global.u32 [%d3], %r6;
)",
                                      ".shared .align 16 .b8 tiles[16];");
  for (const bool barrier : {true, false}) {
    Bench bench(absl::StrReplaceAll(
        text, {{"$FIRST", barrier ? "barrier.cluster.arrive.release.aligned;" : ""},
               {"$SECOND", barrier ? "barrier.cluster.wait.acquire.aligned;" : ""}}));
    const uint64_t out = bench.memory.Allocate(8);
    bench.Argument(out);
    bench.config.cluster = {2, 1, 1};
    const absl::Status status = bench.Launch(2, 32);
    if (barrier) {
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(bench.Take<uint32_t>(out, 2), (std::vector<uint32_t>{1, 0}));
    } else {
      EXPECT_NE(bench.Kinds(), "");
    }
  }
}

// A box that reaches over the borders of a matrix of 10 columns and 6 rows: zeros outside.
TEST(Tma, OutsideIsZero) {
  const std::string text = KernelText({".align 64 .b8", ".u64", ".u32", ".u32"}, R"(
mov.b64 %d1, p0;
cvta.param.u64 %d1, %d1;
ld.param.u64 %d2, [p1];
ld.param.u32 %r1, [p2];
ld.param.u32 %r2, [p3];
mov.u32 %r3, tiles;
mov.u32 %r5, %tid.x;
setp.ne.u32 %p1, %r5, 0;
@%p1 bra READY;
mbarrier.init.shared::cta.b64 [%r3+512], 1;
fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3+512], 128;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
  [%r3], [%d1, {%r1, %r2}], [%r3+512];
READY:
bar.sync 0;
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3+512], 0;
@!%p2 bra WAIT;
shl.b32 %r6, %r5, 2;
add.s32 %r7, %r3, %r6;
ld.shared.f32 %f1, [%r7];
cvt.u64.u32 %d3, %r6;
add.s64 %d4, %d2, %d3;
st.global.f32 [%d4], %f1;
)",
                                      ".shared .align 1024 .b8 tiles[1024];");
  for (const auto& [x, y] :
       {std::pair{0, 0}, std::pair{8, 4}, std::pair{-3, -1}, std::pair{40, 0}}) {
    MachineOptions options;
    options.runs = 4;
    Bench bench(text, options);
    // Rows of 12 floats, of which 10 belong to the matrix.
    std::vector<float> matrix(12 * 6);
    for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<float>(i + 1);
    TensorMap map = MapOf(bench.Put(matrix), 10, 6, 8, 4, 4, 0);
    map.strides[0] = 48;
    bench.Argument(map);
    const uint64_t out = bench.memory.Allocate(128);
    bench.Argument(out);
    bench.Argument(static_cast<uint32_t>(x));
    bench.Argument(static_cast<uint32_t>(y));
    const absl::Status status = bench.Launch(1, 32);
    ASSERT_TRUE(status.ok()) << status;
    const std::vector<float> box = bench.Take<float>(out, 32);
    for (int row = 0; row < 4; ++row)
      for (int column = 0; column < 8; ++column) {
        const int r = y + row, c = x + column;
        const bool inside = r >= 0 && r < 6 && c >= 0 && c < 10;
        EXPECT_EQ(box[row * 8 + column], inside ? matrix[r * 12 + c] : 0) << x << ", " << y;
      }
  }
}

TEST(Counters, SectorsAndBanks) {
  Bench bench(KernelText({".u64"}, R"(
ld.param.u64 %d1, [p0];
mov.u32 %r1, %tid.x;
mul.wide.u32 %d2, %r1, 4;
add.s64 %d3, %d1, %d2;
ld.global.u32 %r2, [%d3];
mul.wide.u32 %d4, %r1, 64;
add.s64 %d5, %d1, %d4;
ld.global.u32 %r3, [%d5];
mov.u32 %r4, tiles;
mad.lo.s32 %r5, %r1, 128, %r4;
st.shared.u32 [%r5], %r2;
)",
                         ".shared .align 128 .b8 tiles[4096];"));
  bench.Argument(bench.Put(std::vector<uint32_t>(512)));
  ASSERT_TRUE(bench.Launch(1, 32).ok());
  EXPECT_EQ(bench.machine.counters().global_sectors, 4u + 32u);
  EXPECT_EQ(bench.machine.counters().shared_accesses, 1u);
  EXPECT_EQ(bench.machine.counters().shared_wavefronts, 32u);
}

}  // namespace
}  // namespace outboard::ptx
