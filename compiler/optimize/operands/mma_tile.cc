#include "compiler/optimize/operands/mma_tile.h"

#include <algorithm>
#include <bit>
#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/divide_up.h"
#include "compiler/target.h"

namespace outboard::codegen {
namespace {

constexpr int64_t kMmaSide = 16;       // rows or columns of one fragment of an operand
constexpr int64_t kMmaBytes = 32;      // its steps
// For addresses, counters and what the epilogue keeps: found with ptxas for all candidates below.
constexpr int64_t kOtherRegisters = 56;
constexpr int64_t kStagesMin = 2, kStagesMax = 4;
constexpr int64_t kOrder = 8, kOrderMax = 999;

bool IsPower(int64_t n) { return n > 0 && std::has_single_bit(static_cast<uint64_t>(n)); }

int64_t MultiprocessorsOf(const Target& target) {
  return std::max<int64_t>(1, target.multiprocessors > 0 ? target.multiprocessors : target.threads);
}

// Of a thread of 32 that share a part of the tile.
int64_t SumsOf(const MmaTile& tile) {
  return tile.rows / tile.warps_down * (tile.columns / tile.warps_across) / kWarpThreads;
}

int64_t RegistersOf(const MmaProduct& product, const MmaTile& tile) {
  const int64_t rows = tile.rows / tile.warps_down, columns = tile.columns / tile.warps_across;
  const int64_t sums = SumsOf(tile);
  int64_t operands = (rows + columns) / kMmaSide * 4;
  // Two parts of each; what rounds them, and a sum of products, for a few.
  if (product.parts == MmaParts::kThree) operands = operands * 2 + 8;
  if (ByteWidth(product.dtype) == 1) operands += 4;
  return sums + operands + kOtherRegisters;
}

int64_t SharedBytesOf(const MmaProduct& product, const MmaTile& tile) {
  return (tile.rows + tile.columns) * tile.steps * tile.stages * ByteWidth(product.dtype);
}

// Products of a multiprocessor in a cycle: of f32 by its threads, of TF32 by mma.sync. From the
// white papers of NVIDIA; sm_90's matrix units reach about 0.6 of their rate by mma.sync, and those
// of some devices of sm_89 have twice this rate.
struct Rates {
  const char* arch;
  double f32, tf32;
};
constexpr Rates kRates[] = {
    {"sm_80", 64, 512}, {"sm_89", 128, 256}, {"sm_90", 128, 614}, {"sm_90a", 128, 614}};

// Candidates, with the part of a matrix unit's speed that such a tile reaches: large ones read
// shared memory less often. Estimated from how many LDMATRIX there are for one MMA, and above 1
// from the bytes that come from the second cache for it; not measured.
struct Candidate {
  MmaTile tile;
  double speed;
};
constexpr Candidate kCandidates[] = {
    {{128, 256, 32, 2, 4, 0}, 1.05}, {{256, 128, 32, 4, 2, 0}, 1.05},
    {{128, 128, 32, 2, 2, 0}, 1.0}, {{128, 128, 32, 2, 4, 0}, 0.95}, {{128, 64, 32, 2, 2, 0}, 0.85},
    {{64, 128, 32, 2, 2, 0}, 0.85}, {{64, 64, 32, 2, 2, 0}, 0.7},    {{32, 128, 32, 1, 4, 0}, 0.6},
    {{128, 32, 32, 4, 1, 0}, 0.6},  {{64, 32, 32, 2, 2, 0}, 0.5},    {{32, 64, 32, 2, 2, 0}, 0.5},
    {{32, 32, 32, 2, 2, 0}, 0.35},  {{16, 64, 64, 1, 4, 0}, 0.3},    {{64, 16, 64, 4, 1, 0}, 0.3},
};

// Their steps are for 16 bits.
constexpr int64_t kCandidateBytes = 2;
// Elements of both operands that a thread computes for a stage, at most, where it has twice the
// steps: they are in registers beside the sums.
constexpr int64_t kComputedOfThread = 16;

// The blocks that one of NVIDIA's multiprocessors runs at once, by their registers and shared
// memory: threads and their number are no limit before.
int64_t BlocksAtOnce(const MmaProduct& product, const MmaTile& tile, const Target& target) {
  constexpr int64_t kPiece = 8;               // registers of a thread are given out in these
  constexpr int64_t kBesideBlock = 1 << 10;  // shared memory that each block takes beside its own
  const int64_t registers = DivideUp(RegistersOf(product, tile), kPiece) * kPiece;
  const int64_t by_registers = kCudaRegisters / (registers * tile.threads());
  const int64_t by_memory = (target.block_bytes_max() + kBesideBlock) /
                            (SharedBytesOf(product, tile) + kBesideBlock);
  return std::max<int64_t>(1, std::min(by_registers, by_memory));
}

// The part of its speed that a unit reaches with the warps of the blocks at once, of so many that
// one multiprocessor has: while one waits, others multiply. Estimated; not measured.
double SpeedOfWarps(const MmaProduct& product, const MmaTile& tile, const Target& target,
                    int64_t blocks) {
  if (target.kind != TargetKind::kCuda) return 1;
  const int64_t at_once = std::min(blocks, BlocksAtOnce(product, tile, target));
  const auto warps = static_cast<double>(tile.warps_down * tile.warps_across * at_once);
  return warps / (warps + 1);
}

// And with copies that were begun so many steps before. Estimated; not measured.
double SpeedOfCopies(const MmaTile& tile) {
  constexpr double kOfStages[] = {0.9, 0.97, 1};  // from kStagesMin on
  return kOfStages[tile.stages - kStagesMin];
}

// Below, threads that each compute a sum are as fast, and nothing is left over of a tile.
constexpr int64_t kSideMin = 8, kStepsMin = 16;

}  // namespace

// They also have to be split: not where it is close.
bool ThreeProductsPay(const Target& target) {
  for (const Rates& rates : kRates)
    if (target.arch == rates.arch) return rates.tf32 / 3 > 1.2 * rates.f32;
  return false;
}

int64_t MmaAmount(const MmaTile& tile) {
  int64_t amount = tile.order * 1000 + tile.rows;
  for (const int64_t size : {tile.columns, tile.steps}) amount = amount * 1000 + size;
  for (const int64_t count : {tile.warps_down, tile.warps_across, tile.stages})
    amount = amount * 10 + count;
  return amount;
}

MmaTile MmaTileOf(int64_t amount) {
  MmaTile tile;
  for (int64_t* count : {&tile.stages, &tile.warps_across, &tile.warps_down}) {
    *count = amount % 10;
    amount /= 10;
  }
  for (int64_t* size : {&tile.steps, &tile.columns}) {
    *size = amount % 1000;
    amount /= 1000;
  }
  tile.rows = amount % 1000;
  tile.order = amount / 1000;
  return tile;
}

bool IsSummedOver(const LoopNest& kernel, int64_t axis) {
  const std::vector<int>& reduced = kernel.groups[0].ranges;
  return std::find(reduced.begin(), reduced.end(), axis) != reduced.end();
}

int64_t OrderOf(const MmaTile& tile, int64_t down) {
  if (tile.order > 0) return tile.order;
  int64_t order = kOrder;
  while (down % order != 0) order /= 2;
  return order;
}

std::optional<MatrixUnit> MatrixUnitOf(const Target& target) {
  if (target.kind == TargetKind::kCuda) return MatrixUnit::kMma;
  if (target.kind != TargetKind::kAmd) return std::nullopt;
  if (target.arch == "gfx1100") return MatrixUnit::kWmma;
  if (target.arch == "gfx942") return MatrixUnit::kMfma;
  return std::nullopt;
}

absl::Status CheckMmaTile(const MmaProduct& product, const MmaTile& tile, const Target& target) {
  const auto illegal = [](const char* why) {
    return absl::InvalidArgumentError(absl::StrCat("MMA: ", why));
  };
  for (const int64_t n : {tile.rows, tile.columns, tile.steps, tile.warps_down, tile.warps_across})
    if (!IsPower(n) || n > 256) return illegal("sizes are powers of two up to 256");
  if (tile.rows % (kMmaSide * tile.warps_down) != 0 ||
      tile.columns % (kMmaSide * tile.warps_across) != 0 ||
      tile.steps * ByteWidth(product.dtype) % kMmaBytes != 0)
    return illegal("a warp's part of the tile is no multiple of 16 by 16 by 32 bytes");
  if (product.parts == MmaParts::kThree && product.steps < kThreeStepsMin)
    return illegal("a sum of so few products of f32 would not be within its bound");
  if (tile.stages < kStagesMin || tile.stages > kStagesMax) return illegal("2 to 4 stages");
  if (tile.order < 0 || tile.order > kOrderMax ||
      (tile.order > 0 && DivideUp(product.rows.count, tile.rows) % tile.order != 0))
    return illegal("the order does not divide the number of tiles below each other");
  const auto room = [](const char* what, int64_t need, int64_t limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat("MMA: ", need, " ", what, " of a block; the target has ", limit));
  };
  int64_t registers = RegistersOf(product, tile);
  // WMMA's operands take twice as many: both halves of its threads have all of them.
  if (MatrixUnitOf(target) == MatrixUnit::kWmma)
    registers += RegistersOf(product, tile) - SumsOf(tile);
  const int64_t threads = tile.threads();
  const int64_t bytes = SharedBytesOf(product, tile);
  if (threads > target.block_threads) return room("threads", threads, target.block_threads);
  if (bytes > target.block_bytes_max())
    return room("bytes of shared memory", bytes, target.block_bytes_max());
  if (registers > kCudaThreadRegistersMax)
    return absl::ResourceExhaustedError(absl::StrCat("MMA: about ", registers,
                                                     " registers of a thread; the target has ",
                                                     kCudaThreadRegistersMax));
  if (registers * threads > kCudaRegisters)
    return room("registers", registers * threads, kCudaRegisters);
  // ptxas leaves room for a second block of eight warps. What is kept for sums is then spilled.
  if (product.adds_rows && 2 * registers * threads > kCudaRegisters)
    return room("registers, with sums of rows,", registers * threads, kCudaRegisters / 2);
  if (!TileSharesCopies(product, tile))
    return illegal("threads do not share the copies of an operand evenly");
  return absl::OkStatus();
}

bool TileSharesCopies(const MmaProduct& product, const MmaTile& tile) {
  return std::ranges::all_of(product.addends, [&](const MmaAddend& addend) {
    return tile.steps * tile.rows % (tile.threads() * addend.rows.run) == 0 &&
           tile.steps * tile.columns % (tile.threads() * addend.columns.run) == 0;
  });
}

std::optional<MmaTile> ChooseMmaTile(const MmaProduct& product, const Target& target) {
  if (std::min(product.rows.count, product.columns.count) < kSideMin || product.steps < kStepsMin)
    return std::nullopt;
  if (product.parts == MmaParts::kThree && !ThreeProductsPay(target)) return std::nullopt;
  std::optional<MmaTile> best;
  double least = 0;
  for (const Candidate& candidate : kCandidates) {
    MmaTile tile = candidate.tile;
    tile.warp_threads = ThreadsOf(MatrixUnitOf(target).value_or(MatrixUnit::kMma));
    tile.steps = tile.steps * kCandidateBytes / ByteWidth(product.dtype);
    // A warp then reads whole blocks of packed numbers, and a scale once for each.
    if (product.block_steps % (2 * tile.steps) == 0 && product.steps >= 2 * tile.steps &&
        2 * (tile.rows + tile.columns) * tile.steps <= kComputedOfThread * tile.threads())
      tile.steps *= 2;
    const int64_t blocks = product.batches * DivideUp(product.rows.count, tile.rows) *
                           DivideUp(product.columns.count, tile.columns);
    // Of one multiprocessor, one after the other or several at once.
    const int64_t rounds = DivideUp(blocks, MultiprocessorsOf(target));
    for (tile.stages = kStagesMax; tile.stages >= kStagesMin; --tile.stages) {
      if (!CheckMmaTile(product, tile, target).ok()) continue;
      const double speed = candidate.speed * SpeedOfCopies(tile) *
                           SpeedOfWarps(product, tile, target, rounds);
      const double time = static_cast<double>(rounds * tile.rows * tile.columns) / speed;
      if (best && time >= least) continue;
      best = tile;
      least = time;
    }
  }
  return best;
}

absl::StatusOr<std::optional<MmaPlan>> PlanMma(const LoopNest& kernel, const Target& target,
                                               const std::vector<Opt>* opts) {
  const bool asked = opts != nullptr && opts->size() == 1 && (*opts)[0].kind == OptKind::kMma;
  const std::optional<MatrixUnit> unit = MatrixUnitOf(target);
  if (!unit) {
    if (asked) return absl::InvalidArgumentError("MMA: the target is no GPU with matrix units");
    return std::nullopt;
  }
  if (opts != nullptr && !asked) return std::nullopt;
  const bool has_bytes = *unit == MatrixUnit::kMma && target.arch != "sm_80";
  absl::StatusOr<MmaProduct> product =
      FindMmaProduct(kernel, has_bytes ? MixedBytes::kAsTheyAre : MixedBytes::kWidened);
  if (!product.ok()) {
    if (asked) return absl::Status(product.status());
    return std::nullopt;
  }
  MmaPlan plan{.product = *std::move(product), .tile = {}, .unit = *unit};
  if (*unit != MatrixUnit::kMma && !IsFloatOf16(plan.product.dtype)) {
    if (asked) return absl::InvalidArgumentError("MMA: AMD's units take bf16 and f16");
    return std::nullopt;
  }
  if (*unit != MatrixUnit::kMma && plan.product.adds_rows) {
    if (asked) return absl::InvalidArgumentError("MMA: sums of rows are of NVIDIA's units");
    return std::nullopt;
  }
  if (ByteWidth(plan.product.dtype) == 1 && !has_bytes) {
    if (asked) return absl::InvalidArgumentError("MMA: sm_80 has no products of 8-bit floats");
    return std::nullopt;
  }
  if (asked) {
    if (!IsSummedOver(kernel, (*opts)[0].axis))
      return absl::InvalidArgumentError("MMA: the axis is not the one that is summed over");
    plan.tile = MmaTileOf((*opts)[0].amount);
    plan.tile.warp_threads = ThreadsOf(*unit);
    if (absl::Status status = CheckMmaTile(plan.product, plan.tile, target); !status.ok())
      return status;
    return plan;
  }
  const std::optional<MmaTile> tile = ChooseMmaTile(plan.product, target);
  if (!tile) return std::nullopt;
  plan.tile = *tile;
  return plan;
}

}  // namespace outboard::codegen
