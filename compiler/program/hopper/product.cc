#include "compiler/program/hopper/product.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/program/expand.h"
#include "compiler/program/spec.h"
#include "compiler/proof/program_range.h"
#include "compiler/target.h"

namespace outboard::program {
namespace {

constexpr int64_t kDepth = 64;  // of a stage: 128 bytes, a row of a swizzle
constexpr int64_t kSteps = kDepth / kWgmmaDepth;
constexpr int64_t kWide = 64;  // rows that are consecutive where an operand is stored by columns
constexpr int64_t kConsumers = 2;
constexpr int64_t kThreads = (1 + kConsumers) * kWarpgroupThreads;
// 65,536 registers are 168 for each of 384 threads. What the first warpgroup gives up, the others
// get.
constexpr int64_t kProducerRegisters = 40, kConsumerRegisters = 232;
constexpr int64_t kRowsOfTilesMax =
    8;  // that follow each other: their A and B stay in the L2 cache

int64_t Ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

// One operand in memory and in shared memory; `rows` are those of A, or columns of B.
struct RingOperand {
  ValueId map = -1, shared = -1;
  int64_t tile_rows = 0;
  bool along_rows = false;
  int64_t elements() const { return tile_rows * kDepth; }
  int64_t leading() const { return along_rows ? kWide * kDepth : 0; }
};

class ProductBuilder {
 public:
  ProductBuilder(ProgramBuilder& b, const HopperShape& shape, const HopperTile& tile,
                 const SumStores& stores)
      : shape_(shape), tile_(tile), stores_(stores), b_(b) {}

  void Build() {
    tiles_m_ = Ceil(shape_.m, tile_.rows);
    tiles_n_ = Ceil(shape_.n, tile_.columns);
    tiles_ = tiles_m_ * tiles_n_ * shape_.batches();
    blocks_ = tile_.persistent_blocks > 0 ? std::min(tile_.persistent_blocks, tiles_) : tiles_;
    OpenBlock();
    const ValueId group = b_.Divide(thread_, kWarpgroupThreads);
    const ValueId produces = b_.If(b_.Alu(Op::kCmpEq, DType::kBool, {group, b_.Int(0)}));
    b_.Do(Code::kMaxRegisters, {}, {kProducerRegisters, 0, 0});
    const ValueId one = b_.If(b_.Less(thread_, b_.Int(1)));
    Produce();
    b_.EndIf(one);
    b_.EndIf(produces);
    const ValueId consumes = b_.If(b_.Less(b_.Int(0), group));
    b_.Do(Code::kMaxRegisters, {}, {kConsumerRegisters, 1, 0});
    Consume(b_.Plus(group, b_.Int(-1)));
    b_.EndIf(consumes);
  }

 private:
  // ---- memories

  RingOperand Open(const HopperOperand& operand, int64_t tile_rows) {
    RingOperand staged{.tile_rows = tile_rows, .along_rows = operand.along_rows};
    MappedTensor view = operand.view;
    view.swizzled = true;
    view.box.assign(view.dims.size(), 1);
    view.box[0] = kWide;
    view.box[1] = operand.along_rows ? kDepth : tile_rows;
    staged.map = b_.Map(b_.Buffer(shape_.dtype, view.slot, operand.elements), view);
    staged.shared = b_.Alloc(Space::kShared, shape_.dtype, tile_.stages * tile_rows * kDepth);
    return staged;
  }

  void OpenBlock() {
    block_ = b_.Special(Grid::kBlock, blocks_);
    thread_ = b_.Special(Grid::kThread, kThreads);
    a_staged_ = Open(shape_.a, tile_.rows);
    b_staged_ = Open(shape_.b, tile_.columns);
    barriers_ = b_.Alloc(Space::kBarriers, DType::kU64, 2 * tile_.stages);
    const ValueId one = b_.If(b_.Less(thread_, b_.Int(1)));
    for (int64_t stage = 0; stage < tile_.stages; ++stage) {
      b_.Do(Code::kBarrierInit, {barriers_, Full(b_.Int(stage))}, {1, 0, 0});
      b_.Do(Code::kBarrierInit, {barriers_, Empty(b_.Int(stage))}, {kConsumers, 0, 0});
    }
    b_.EndIf(one);
    b_.Barrier();
  }

  ValueId Full(ValueId stage) { return stage; }
  ValueId Empty(ValueId stage) { return b_.Plus(stage, b_.Int(tile_.stages)); }

  // Stages and phases of step `step` of this block's round `round`: both follow from how many steps
  // came before, so that nothing has to be remembered.
  struct StepPlace {
    ValueId stage, parity;
  };
  StepPlace PlaceOfStep(ValueId round, ValueId step) {
    const ValueId count = b_.Plus(b_.Times(round, Ceil(shape_.k, kDepth)), step);
    return {b_.Modulo(count, tile_.stages), b_.Modulo(b_.Divide(count, tile_.stages), 2)};
  }
  // Steps are counted on by a multiple of the stages, so that no number is negative.
  ValueId StageBefore(ValueId round, ValueId step) {
    return PlaceOfStep(round, b_.Plus(step, b_.Int(tile_.stages - 1))).stage;
  }

  // ---- tiles

  struct TilePlace {
    ValueId batch, row, column;  // of the first element
  };
  // Tiles in groups of rows, column by column.
  TilePlace PlaceOf(ValueId tile) {
    int64_t group = std::min(kRowsOfTilesMax, tiles_m_);
    while (tiles_m_ % group != 0) --group;
    const ValueId in_batch = b_.Modulo(tile, tiles_m_ * tiles_n_);
    const ValueId in_group = b_.Modulo(in_batch, group * tiles_n_);
    const ValueId i =
        b_.Plus(b_.Times(b_.Divide(in_batch, group * tiles_n_), group), b_.Modulo(in_group, group));
    const ValueId j = b_.Divide(in_group, group);
    return {b_.Divide(tile, tiles_m_ * tiles_n_), b_.Times(i, tile_.rows),
            b_.Times(j, tile_.columns)};
  }

  // Runs `body` for each tile of this block.
  template <class Body>
  void ForTiles(const Body& body) {
    if (blocks_ == tiles_) return body(b_.Int(0), PlaceOf(block_));
    const ValueId round = b_.Loop(Ceil(tiles_, blocks_));
    const ValueId tile = b_.Plus(b_.Times(round, blocks_), block_);
    const ValueId more = b_.If(b_.Less(tile, b_.Int(tiles_)));
    body(round, PlaceOf(tile));
    b_.EndIf(more);
    b_.End(round);
  }

  // ---- copies

  void Produce() {
    ForTiles([&](ValueId round, const TilePlace& place) {
      const ValueId step = b_.Loop(Ceil(shape_.k, kDepth));
      const StepPlace at = PlaceOfStep(round, step);
      // Empty for the first time is what precedes phase 0: parity 1.
      const ValueId parity = b_.Plus(b_.Int(1), b_.Times(at.parity, -1));
      b_.Do(Code::kBarrierWait, {barriers_, Empty(at.stage), parity});
      const int64_t bytes = (a_staged_.elements() + b_staged_.elements()) * ByteWidth(shape_.dtype);
      b_.Do(Code::kBarrierExpect, {barriers_, Full(at.stage)}, {bytes, 0, 0});
      const ValueId k = b_.Times(step, kDepth);
      Fetch(a_staged_, at.stage, k, place.row, place.batch);
      Fetch(b_staged_, at.stage, k, place.column, place.batch);
      b_.End(step);
    });
  }

  void Fetch(const RingOperand& operand, ValueId stage, ValueId k, ValueId row, ValueId batch) {
    const int64_t boxes = operand.along_rows ? operand.tile_rows / kWide : 1;
    for (int64_t box = 0; box < boxes; ++box) {
      const ValueId to =
          b_.Plus(b_.Times(stage, operand.elements()), b_.Int(box * operand.leading()));
      std::vector<ValueId> src = {operand.shared, to, barriers_, Full(stage), operand.map};
      const ValueId rows = b_.Plus(row, b_.Int(box * kWide));
      if (operand.along_rows)
        src.insert(src.end(), {rows, k});
      else
        src.insert(src.end(), {k, rows});
      // The innermost of the batch comes first.
      ValueId left = batch;
      for (size_t i = shape_.batch.size(); i-- > 0;) {
        src.push_back(i == 0 ? left : b_.Modulo(left, shape_.batch[i]));
        left = b_.Divide(left, shape_.batch[i]);
      }
      b_.Do(Code::kBoxLoad, src);
    }
  }

  // ---- products

  void Consume(ValueId consumer) {
    const ValueId sums = b_.Alloc(Space::kPrivate, DType::kF32, tile_.columns / 2);
    const ValueId speaks =
        b_.Alu(Op::kCmpEq, DType::kBool, {b_.Modulo(thread_, kWarpgroupThreads), b_.Int(0)});
    const auto multiply = [&](const StepPlace& place) {
      b_.Do(Code::kBarrierWait, {barriers_, Full(place.stage), place.parity});
      b_.Do(Code::kGroupFence, {sums});
      const ValueId rows =
          b_.Plus(b_.Times(place.stage, a_staged_.elements()),
                  b_.Times(consumer, kWgmmaRows * (a_staged_.along_rows ? kDepth : kWide)));
      const ValueId columns = b_.Times(place.stage, b_staged_.elements());
      for (int64_t step = 0; step < kSteps; ++step) {
        const auto at = [&](const RingOperand& operand, ValueId first) {
          return b_.Plus(first, b_.Int(step * kWgmmaDepth * (operand.along_rows ? kWide : 1)));
        };
        b_.Do(
            Code::kGroupMma,
            {sums, a_staged_.shared, at(a_staged_, rows), b_staged_.shared, at(b_staged_, columns)},
            {tile_.columns, a_staged_.leading(), b_staged_.leading()});
      }
      b_.Do(Code::kGroupCommit);
    };
    const auto release = [&](ValueId stage) {
      const ValueId one = b_.If(speaks);
      b_.Do(Code::kBarrierArrive, {barriers_, Empty(stage)});
      b_.EndIf(one);
    };
    ForTiles([&](ValueId round, const TilePlace& place) {
      const int64_t steps = Ceil(shape_.k, kDepth);
      for (int64_t e = 0; e < tile_.columns / 2; ++e)
        b_.Store(sums, b_.Int(e), b_.Const(DType::kF32, 0));
      multiply(PlaceOfStep(round, b_.Int(0)));
      const ValueId counter = b_.Loop(steps - 1);
      const ValueId step = b_.Plus(counter, b_.Int(1));
      multiply(PlaceOfStep(round, step));
      b_.Do(Code::kGroupWait, {sums}, {1, 0, 0});
      release(StageBefore(round, step));
      b_.End(counter);
      b_.Do(Code::kGroupWait, {sums}, {0, 0, 0});
      release(PlaceOfStep(round, b_.Int(steps - 1)).stage);
      StoreSums(sums, consumer, place);
    });
  }

  // Two neighbouring columns at a time: n is even, so that both are within C or neither.
  void StoreSums(ValueId sums, ValueId consumer, const TilePlace& place) {
    const ValueId in_group = b_.Modulo(thread_, kWarpgroupThreads);
    const ValueId row = b_.Plus(b_.Plus(place.row, b_.Times(consumer, kWgmmaRows)),
                                b_.Plus(b_.Times(b_.Divide(in_group, kWarpThreads), 16),
                                        b_.Divide(b_.Modulo(in_group, kWarpThreads), 4)));
    const ValueId column = b_.Plus(place.column, b_.Times(b_.Modulo(in_group, 4), 2));
    for (int64_t e = 0; e < tile_.columns / 2; e += 2) {
      // The place of thread 0's element: the others' are as far from it as their thread's first
      // one.
      const MatrixPlace first = WgmmaElement(0, static_cast<int>(e));
      SumPlace at{place.batch, b_.Plus(row, b_.Int(first.row)),
                  b_.Plus(column, b_.Int(first.column))};
      if (shape_.m % tile_.rows != 0) at.inside = b_.Less(at.row, b_.Int(shape_.m));
      if (shape_.n % tile_.columns != 0) {
        const ValueId within = b_.Less(at.column, b_.Int(shape_.n - 1));  // and so is the next
        at.inside = at.inside < 0 ? within : b_.Alu(Op::kAnd, DType::kBool, {at.inside, within});
      }
      stores_(at, b_.Load(sums, b_.Int(e)), b_.Load(sums, b_.Int(e + 1)));
    }
  }

  const HopperShape& shape_;
  const HopperTile& tile_;
  const SumStores& stores_;
  ProgramBuilder& b_;
  int64_t tiles_m_ = 0, tiles_n_ = 0, tiles_ = 0, blocks_ = 0;
  ValueId block_ = -1, thread_ = -1, barriers_ = -1;
  RingOperand a_staged_, b_staged_;
};

// A matrix of `rows` by k, in a buffer of its own.
HopperOperand WholeMatrix(const HopperProduct& product, int slot, int64_t rows, bool along_rows) {
  const int64_t width = ByteWidth(product.dtype);
  HopperOperand operand{.elements = product.batch * rows * product.k, .along_rows = along_rows};
  operand.view = {.slot = slot,
                  .element = product.dtype == DType::kBF16 ? MappedTensor::Element::kBF16
                                                           : MappedTensor::Element::kF16,
                  .dims = along_rows ? std::vector<int64_t>{rows, product.k}
                                     : std::vector<int64_t>{product.k, rows}};
  operand.view.strides = {operand.view.dims[0] * width};
  if (product.batch > 1) {
    operand.view.dims.push_back(product.batch);
    operand.view.strides.push_back(rows * product.k * width);
  }
  return operand;
}

}  // namespace

absl::Status CheckHopperShape(const HopperShape& shape, const HopperTile& tile) {
  const auto none_for = [](const auto&... what) {
    return absl::UnimplementedError(absl::StrCat("product by warpgroups: ", what...));
  };
  if (shape.dtype != DType::kBF16 && shape.dtype != DType::kF16)
    return none_for("of ", std::string(Name(shape.dtype)), "; bf16 and f16 have a form");
  if (shape.m < 1 || shape.n < 1 || shape.k < 1 || shape.batches() < 1)
    return none_for("of nothing");
  if (shape.n % 2 != 0) return none_for("of ", shape.n, " columns, an odd number");
  for (const auto& [name, operand] : {std::pair("A", &shape.a), std::pair("B", &shape.b)}) {
    const MappedTensor& view = operand->view;
    if (view.rank() > MappedTensor::kRankMax)
      return none_for(name, " has ", view.rank(), " dimensions; a view has ",
                      MappedTensor::kRankMax);
    for (const int64_t bytes : view.strides)
      if (bytes < 1 || bytes % MappedTensor::kStrideAlign != 0)
        return none_for("rows of ", name, " are ", bytes, " bytes apart, no multiple of ",
                        MappedTensor::kStrideAlign);
  }
  if (tile.rows != kConsumers * kWgmmaRows || tile.columns < kWide ||
      tile.columns > kWgmmaColumnsMax || tile.columns % kWide != 0)
    return none_for("tiles of ", tile.rows, " x ", tile.columns,
                    "; they have 128 rows and 64 to 256 columns");
  // The place in the ring is then some bits of a count.
  if (tile.stages != 2 && tile.stages != 4 && tile.stages != 8)
    return none_for(tile.stages, " stages; there are 2, 4 or 8");
  const int64_t bytes =
      tile.stages * (tile.rows + tile.columns) * kDepth * ByteWidth(shape.dtype) + kSwizzleAlign;
  if (bytes > kHopperSharedBytesMax)
    return none_for("stages of ", bytes, " bytes; a block has ", kHopperSharedBytesMax);
  return absl::OkStatus();
}

void AddHopperProduct(ProgramBuilder& b, const HopperShape& shape, const HopperTile& tile,
                      const SumStores& stores) {
  ProductBuilder(b, shape, tile, stores).Build();
}

absl::StatusOr<Program> MakeHopperProduct(const HopperProduct& product, const HopperTile& tile,
                                          const ProductEpilogue& epilogue) {
  HopperShape shape{.dtype = product.dtype, .m = product.m, .n = product.n, .k = product.k};
  if (product.batch > 1) shape.batch = {product.batch};
  shape.a = WholeMatrix(product, product.a_slot, product.m, product.a_by_columns);
  shape.b = WholeMatrix(product, product.b_slot, product.n, !product.b_by_columns);
  if (absl::Status status = CheckHopperShape(shape, tile); !status.ok()) return status;
  ProgramBuilder b;
  const ValueId c =
      b.Buffer(product.c_dtype, product.c_slot, product.batch * product.m * product.n);
  AddHopperProduct(b, shape, tile, [&](SumPlace place, ValueId first, ValueId second) {
    Instruction values{.code = Code::kLanes, .dtype = product.c_dtype, .lanes = 2};
    for (const ValueId sum : {first, second}) {
      SumPlace at = place;
      if (sum == second) at.column = b.Plus(place.column, b.Int(1));
      values.src.push_back(epilogue != nullptr ? epilogue(b, at, sum)
                                               : b.Cast(sum, product.c_dtype));
    }
    const ValueId to = b.Plus(
        b.Times(b.Plus(b.Times(place.batch, product.m), place.row), product.n), place.column);
    Instruction store{.code = Code::kStore, .lanes = 2, .src = {c, to}};
    store.src.push_back(b.Add(std::move(values)));
    if (place.inside >= 0) store.src.push_back(b.Splat(place.inside, 2));
    b.Add(std::move(store));
  });
  Program program = b.Take(product.buffer_count);
  if (absl::Status status = CheckProgram(program, "product by warpgroups"); !status.ok())
    return status;
  program = DropUnused(Hoist(program));
  if (absl::Status status = CheckProgram(program, "hoist"); !status.ok()) return status;
  if (absl::Status status = proof::CheckInRange(program); !status.ok()) return status;
  return program;
}

}  // namespace outboard::program
