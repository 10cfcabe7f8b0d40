#include "compiler/program/hopper/product.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/program/hopper/ring.h"
#include "compiler/program/hopper/tf32_stage.h"
#include "compiler/program/hopper/two_tf32.h"
#include "compiler/target.h"

namespace outboard::program {
namespace {

constexpr int64_t kMmasOfStage = kProductsOfStage;
constexpr int64_t kThreads = (1 + kConsumers) * kWarpgroupThreads;
// 65,536 registers are 168 for each of 384 threads. What the first warpgroup gives up, the others
// get.
constexpr int64_t kProducerRegisters = 40, kConsumerRegisters = 232;
// Who turns B holds squares of it.
constexpr int64_t kTurnerRegisters = 96, kConsumerRegistersBeside = 200;
// Who gathers holds the places of its pieces, and of single elements those, too.
constexpr int64_t kGathererRegisters = 136, kConsumerRegistersBesideGathers = 184;
constexpr int64_t kRegistersBesideElements = 168;  // all have as many

// One operand in memory and in shared memory; `rows` are those of A, or columns of B.
struct RingOperand {
  ValueId map = -1, shared = -1;
  int64_t tile_rows = 0;
  bool along_rows = false;
  int64_t depth = 0;  // k of a stage
  int64_t elements() const { return tile_rows * depth; }
  bool turned = false;  // before it is multiplied
  bool gathered = false;
  // Stored by columns, 128 bytes of rows follow each other, then the next k.
  int64_t wide() const { return depth; }
  int64_t piece() const { return along_rows ? wide() * depth : 0; }
  int64_t leading() const { return turned ? 0 : piece(); }
};

// One of the products that are added, in the ring; or several in a row that lie there alike.
struct RingAddend {
  RingOperand a, b;
  int64_t before = 0, steps = 0;  // of a block: of the addends before, and its own

  bool LiesAs(const RingAddend& other) const {
    return a.along_rows == other.a.along_rows && b.along_rows == other.b.along_rows;
  }
};

class ProductBuilder {
 public:
  ProductBuilder(ProgramBuilder& b, const HopperShape& shape, const HopperTile& tile,
                 const ProductStores& stores, const ProductGathers& gathers)
      : shape_(shape),
        tile_(tile),
        stores_(stores),
        gathers_(gathers),
        b_(b),
        tiles_m_(Ceil(shape.m, tile.rows)),
        tiles_n_(Ceil(shape.n, tile.columns)),
        tiles_(tiles_m_ * tiles_n_ * shape.batches()),
        blocks_(BlocksOf(tile, tiles_)),
        depth_(DepthOf(shape.dtype)),
        addends_(AddendsOf(shape, depth_, tile.split)),
        steps_(addends_.back().before + addends_.back().steps),
        turns_b_(shape.dtype == DType::kF32 && AnyBAlongRows(shape)),
        makes_parts_(shape.three_tf32 || turns_b_),
        a_in_registers_(shape.three_tf32 ||
                        (shape.dtype == DType::kF32 && AnyAAlongRows(shape))),
        results_(b, shape.results, stores, shape.m, shape.n,
                 shape.m % tile.rows != 0 || tiles_m_ % OrderOf() != 0,
                 shape.n % tile.columns != 0) {}

  void Build() {
    b_.SetCluster(tile_.cluster * tile_.split);
    OpenBlock();
    ValueId needed = -1;
    if (stores_.needed) {
      const TilePlace place = PlaceOf(b_.Divide(block_, tile_.split));
      needed = stores_.needed(place.batch, place.row, place.column);
    }
    const ValueId group = b_.Divide(thread_, kWarpgroupThreads);
    const ValueId produces = b_.If(b_.Alu(Op::kCmpEq, DType::kBool, {group, b_.Int(0)}));
    b_.Do(Code::kMaxRegisters, {}, {RegistersOfProducer(), 0, 0});
    if (Gathers()) {
      ProduceTogether();
    } else {
      const ValueId one = b_.If(Speaks());
      Produce();
      b_.EndIf(one);
    }
    if (makes_parts_) {
      const ValueId makes = b_.If(b_.Less(b_.Int(kWarpgroupThreads - kPartMakers - 1), thread_));
      MakeParts();
      b_.EndIf(makes);
    }
    MeetCluster();
    if (tile_.split > 1) MeetCluster();
    b_.EndIf(produces);
    const ValueId consumes = b_.If(b_.Less(b_.Int(0), group));
    b_.Do(Code::kMaxRegisters, {}, {RegistersOfConsumer(), 1, 0});
    const ValueId consumer = b_.Plus(group, b_.Int(-1));
    Consume(consumer);
    if (tile_.split > 1) {
      MeetCluster();
      JoinPartialSums(consumer);
    }
    results_.Finish();
    MeetCluster();
    b_.EndIf(consumes);
    if (needed >= 0) b_.EndIf(needed);
  }

 private:
  static std::vector<RingAddend> AddendsOf(const HopperShape& shape, int64_t depth, int64_t split) {
    std::vector<RingAddend> all;
    int64_t before = 0;
    for (const HopperAddend& addend : shape.addends) {
      all.push_back({.before = before, .steps = Ceil(Ceil(addend.k, depth), split)});
      before += all.back().steps;
    }
    return all;
  }
  // A cluster's blocks have tiles of one round.
  static int64_t BlocksOf(const HopperTile& tile, int64_t tiles) {
    if (tile.persistent_blocks == 0 || tile.split > 1) return tiles * tile.split;
    const int64_t whole =
        std::max(tile.cluster, tile.persistent_blocks / tile.cluster * tile.cluster);
    return std::min(whole, tiles);
  }
  int64_t OrderOf() const { return std::min(tile_.order, tiles_m_); }
  // Others copy to this block's memory, arrive at its barriers or read its parts until they are
  // done. Each warpgroup does so where it is: behind both branches a thread would have no more
  // registers than the one that copies.
  void MeetCluster() {
    if (tile_.cluster * tile_.split > 1) b_.Do(Code::kClusterSync);
  }
  int64_t Partners() const { return tile_.cluster; }
  bool Gathers() const { return shape_.gathers(); }
  ValueId Speaks() { return b_.Less(thread_, b_.Int(1)); }
  int64_t RegistersOfProducer() const {
    if (GathersElements(shape_)) return kRegistersBesideElements;
    if (Gathers()) return kGathererRegisters;
    return turns_b_ ? kTurnerRegisters : kProducerRegisters;
  }
  int64_t RegistersOfConsumer() const {
    if (GathersElements(shape_)) return kRegistersBesideElements;
    if (Gathers()) return kConsumerRegistersBesideGathers;
    return turns_b_ ? kConsumerRegistersBeside : kConsumerRegisters;
  }

  // ---- memories

  // `shared` is the memory of the addends before, which all have in turn; -1: there is none yet.
  RingOperand Open(const HopperOperand& operand, int64_t tile_rows, bool shared_by_cluster,
                   ValueId shared) {
    RingOperand staged{.shared = shared,
                       .tile_rows = tile_rows,
                       .along_rows = operand.along_rows,
                       .depth = depth_,
                       .turned = shape_.dtype == DType::kF32,
                       .gathered = operand.gathered()};
    if (shared < 0)
      staged.shared = b_.Alloc(Space::kShared, shape_.dtype, tile_.stages * staged.elements());
    if (staged.gathered) return staged;
    MappedTensor view = operand.view;
    view.swizzled = true;
    view.box.assign(view.dims.size(), 1);
    view.box[0] = operand.along_rows ? staged.wide() : depth_;
    // A block of a cluster copies its part for all.
    if (shared_by_cluster && !operand.along_rows) tile_rows /= Partners();
    view.box[1] = operand.along_rows ? depth_ : tile_rows;
    staged.map = b_.Map(b_.Buffer(shape_.dtype, view.slot, operand.elements), view);
    return staged;
  }

  void OpenBlock() {
    block_ = b_.Special(Grid::kBlock, blocks_);
    thread_ = b_.Special(Grid::kThread, kThreads);
    rank_ = b_.Modulo(block_, tile_.cluster * tile_.split);
    for (size_t i = 0; i < addends_.size(); ++i) {
      const HopperAddend& addend = shape_.addends[i];
      addends_[i].a = Open(addend.a, tile_.rows, false, addends_[0].a.shared);
      addends_[i].b = Open(addend.b, tile_.columns, Partners() > 1, addends_[0].b.shared);
      if (i > 0 && runs_of_equal_layout_.back().LiesAs(addends_[i]))
        runs_of_equal_layout_.back().steps += addends_[i].steps;
      else
        runs_of_equal_layout_.push_back(addends_[i]);
    }
    results_.Open(thread_, shape_.batch);
    if (tile_.split > 1)
      partial_sums_ = b_.Alloc(Space::kShared, DType::kF32, tile_.rows * tile_.columns);
    if (shape_.three_tf32)
      low_of_b_ = b_.Alloc(Space::kShared, DType::kF32, tile_.stages * addends_[0].b.elements());
    barriers_ = b_.Alloc(Space::kBarriers, DType::kU64, (makes_parts_ ? 3 : 2) * tile_.stages);
    const ValueId one = b_.If(b_.Less(thread_, b_.Int(1)));
    for (int64_t stage = 0; stage < tile_.stages; ++stage) {
      b_.Do(Code::kBarrierInit, {barriers_, Full(b_.Int(stage))}, {ArrivalsOfStage(), 0, 0});
      b_.Do(Code::kBarrierInit, {barriers_, Empty(b_.Int(stage))}, {kConsumers * Partners(), 0, 0});
      if (makes_parts_)
        b_.Do(Code::kBarrierInit, {barriers_, PartsMade(b_.Int(stage))}, {kPartMakers, 0, 0});
    }
    b_.EndIf(one);
    if (tile_.cluster * tile_.split > 1)
      MeetCluster();
    else
      b_.Barrier();
  }

  // Of who expects boxes, and of all who gather.
  int64_t ArrivalsOfStage() const {
    const HopperAddend& first = shape_.addends[0];
    return (first.a.gathered() && first.b.gathered() ? 0 : 1) + (Gathers() ? kWarpgroupThreads : 0);
  }
  ValueId Full(ValueId stage) { return stage; }
  ValueId Empty(ValueId stage) { return b_.Plus(stage, b_.Int(tile_.stages)); }
  // B is turned, and its low parts are there.
  ValueId PartsMade(ValueId stage) { return b_.Plus(stage, b_.Int(2 * tile_.stages)); }

  // Stages and phases of step `step` of this block's round `round`: both follow from how many steps
  // came before, so that nothing has to be remembered.
  struct StepPlace {
    ValueId stage, parity;
  };
  StepPlace PlaceOfStep(ValueId round, const RingAddend& addend, ValueId step) {
    return PlaceOfStep(round, b_.Plus(step, b_.Int(addend.before)));
  }
  StepPlace PlaceOfStep(ValueId round, ValueId step) {
    const ValueId count = b_.Plus(b_.Times(round, steps_), step);
    return {b_.Modulo(count, tile_.stages), b_.Modulo(b_.Divide(count, tile_.stages), 2)};
  }
  // Steps are counted on by a multiple of the stages, so that no number is negative.
  ValueId StageBefore(ValueId round, ValueId step, int64_t steps = 1) {
    return PlaceOfStep(round, b_.Plus(step, b_.Int(tile_.stages - steps))).stage;
  }

  // ---- tiles

  struct TilePlace {
    ValueId batch, row, column;  // of the first element
  };
  // Tiles in groups of rows, column by column; the last group may have fewer rows.
  TilePlace PlaceOf(ValueId tile) {
    const int64_t group = OrderOf(), last = tiles_m_ % group;
    const ValueId in_batch = b_.Modulo(tile, tiles_m_ * tiles_n_);
    const ValueId in_group = b_.Modulo(in_batch, group * tiles_n_);
    const ValueId number = b_.Divide(in_batch, group * tiles_n_);
    ValueId row = b_.Modulo(in_group, group), column = b_.Divide(in_group, group);
    if (last != 0) {
      const ValueId is_last = b_.Alu(Op::kCmpEq, DType::kBool, {number, b_.Int(tiles_m_ / group)});
      row = b_.Alu(Op::kWhere, DType::kI64, {is_last, b_.Modulo(in_group, last), row});
      column = b_.Alu(Op::kWhere, DType::kI64, {is_last, b_.Divide(in_group, last), column});
    }
    return {b_.Divide(tile, tiles_m_ * tiles_n_),
            b_.Times(b_.Plus(b_.Times(number, group), row), tile_.rows),
            b_.Times(column, tile_.columns)};
  }

  // Runs `body` for each tile of this block.
  template <class Body>
  void ForTiles(const Body& body) {
    if (tile_.split > 1) return body(b_.Int(0), PlaceOf(b_.Divide(block_, tile_.split)));
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
      for (const RingAddend& addend : addends_) {
        const ValueId step = b_.Loop(addend.steps);
        const StepPlace at = PlaceOfStep(round, addend, step);
        WaitUntilEmpty(at);
        FetchBoxes(addend, at.stage, StartOf(addend, step), place);
        b_.End(step);
      }
    });
  }

  void WaitUntilEmpty(const StepPlace& at) {
    // Empty for the first time is what precedes phase 0: parity 1.
    const ValueId parity = b_.Plus(b_.Int(1), b_.Times(at.parity, -1));
    b_.Do(Code::kBarrierWait, {barriers_, Empty(at.stage), parity});
  }
  // Of k. Beyond its end there are zeros.
  ValueId StartOf(const RingAddend& addend, ValueId step) {
    const ValueId k = b_.Times(step, depth_);
    return tile_.split > 1 ? b_.Plus(k, b_.Times(rank_, addend.steps * depth_)) : k;
  }

  void FetchBoxes(const RingAddend& addend, ValueId stage, ValueId k, const TilePlace& place) {
    int64_t elements = 0;
    for (const RingOperand* operand : {&addend.a, &addend.b})
      if (!operand->gathered) elements += operand->elements();
    b_.Do(Code::kBarrierExpect, {barriers_, Full(stage)},
          {elements * ByteWidth(shape_.dtype), 0, 0});
    const HopperAddend& of = shape_.addends[&addend - addends_.data()];
    if (!addend.a.gathered) Fetch(addend.a, of.a, stage, k, place.row, place.batch, 1);
    if (!addend.b.gathered) Fetch(addend.b, of.b, stage, k, place.column, place.batch, Partners());
  }

  // By all threads of the first warpgroup. Copies of `behind` steps are under way while those of
  // the next one begin; at the end of a tile all are waited for. Two stages more: a stage is empty
  // again only when the one after it is full.
  void ProduceTogether() {
    const int64_t behind = std::min({steps_, tile_.stages / 2, tile_.stages - 2});
    const RingAddend& addend = addends_[0];  // the only one
    const HopperAddend& of = shape_.addends[0];
    ForTiles([&](ValueId round, const TilePlace& place) {
      const ValueId step = b_.Loop(steps_);
      const StepPlace at = PlaceOfStep(round, step);
      WaitUntilEmpty(at);
      const ValueId k = StartOf(addend, step);
      if (!addend.a.gathered || !addend.b.gathered) {
        const ValueId one = b_.If(Speaks());
        FetchBoxes(addend, at.stage, k, place);
        b_.EndIf(one);
      }
      if (addend.a.gathered) Gather(addend.a, of.a, gathers_.a, at.stage, place, k);
      if (addend.b.gathered) Gather(addend.b, of.b, gathers_.b, at.stage, place, k);
      b_.Do(Code::kCommit);
      const ValueId later = behind == 0 ? ValueId{-1} : b_.If(b_.Less(b_.Int(behind - 1), step));
      Deliver(StageBefore(round, step, behind), behind);
      if (behind > 0) b_.EndIf(later);
      b_.End(step);
      for (int64_t left = behind; left-- > 0;)
        Deliver(StageBefore(round, b_.Int(steps_), left + 1), left);
    });
  }

  void Gather(const RingOperand& staged, const HopperOperand& operand, const GatherPlaces& places,
              ValueId stage, const TilePlace& place, ValueId k) {
    GatherStage(b_,
                {staged.shared, shape_.dtype, staged.tile_rows, operand.run, operand.along_rows,
                 operand.rows_in_lanes},
                places,
                {b_.Times(stage, staged.elements()), place.batch,
                 &operand == &shape_.addends[0].a ? place.row : place.column, k},
                thread_);
  }

  // The thread's part of a stage is there, when all but its copies of the last `left` steps are.
  void Deliver(ValueId stage, int64_t left) {
    b_.Do(Code::kWait, {}, {left, 0, 0});
    b_.Do(Code::kProxyFence);
    b_.Do(Code::kBarrierArrive, {barriers_, Full(stage)});
  }

  // With partners: a part of the boxes, or of the one box, each of which goes to all of them.
  void Fetch(const RingOperand& operand, const HopperOperand& of, ValueId stage, ValueId k,
             ValueId row, ValueId batch, int64_t partners) {
    const int64_t rows_each = operand.tile_rows / partners;
    const int64_t boxes = operand.along_rows ? rows_each / operand.wide() : 1;
    ValueId first = b_.Times(stage, operand.elements());
    if (partners > 1) {
      first = b_.Plus(first, b_.Times(rank_, rows_each * depth_));
      row = b_.Plus(row, b_.Times(rank_, rows_each));
    }
    for (int64_t box = 0; box < boxes; ++box) {
      const ValueId to = b_.Plus(first, b_.Int(box * operand.piece()));
      std::vector<ValueId> src = {operand.shared, to, barriers_, Full(stage), operand.map};
      const ValueId rows = b_.Plus(row, b_.Int(box * operand.wide()));
      for (const ValueId place : CoordinatesOf(b_, shape_, of, batch, rows, k))
        src.push_back(place);
      b_.Do(Code::kBoxLoad, src, {partners > 1 ? (int64_t{1} << partners) - 1 : 0, 0, 0});
    }
  }

  // ---- two TF32 for each f32

  // By the two warps of the first warpgroup that do not copy.
  void MakeParts() {
    ForTiles([&](ValueId round, const TilePlace&) {
      for (const RingAddend& addend : runs_of_equal_layout_) {
        const ValueId step = b_.Loop(addend.steps);
        const StepPlace at = PlaceOfStep(round, addend, step);
        b_.Do(Code::kBarrierWait, {barriers_, Full(at.stage), at.parity});
        // For another addend other threads of the warp have written these places.
        if (runs_of_equal_layout_.size() > 1) b_.Do(Code::kWarpSync);
        // Beside a B that is turned, one that need not be is left as it is.
        if (shape_.three_tf32 || addend.b.along_rows)
          MakePartsOfB(
              b_, {addend.b.shared, b_.Times(at.stage, addend.b.elements()), addend.b.along_rows},
              low_of_b_, tile_.columns, thread_);
        b_.Do(Code::kProxyFence);
        b_.Do(Code::kBarrierArrive, {barriers_, PartsMade(at.stage)});
        b_.End(step);
      }
    });
  }

  // A stage whose A is in registers. In three products low * high, high * low and high * high: what
  // is small is summed first.
  void MultiplyRegisters(const RingAddend& addend, const StepPlace& place, ValueId added,
                         ValueId registers, ValueId consumer) {
    b_.Do(Code::kBarrierWait, {barriers_, Full(place.stage), place.parity});
    LoadStageOfA(b_,
                 {addend.a.shared, b_.Times(place.stage, addend.a.elements()), addend.a.along_rows},
                 consumer, thread_, shape_.three_tf32, registers);
    WaitForParts(place);
    // All have read A before one of them says that the stage is empty.
    b_.Do(Code::kGroupSync);
    b_.Do(Code::kGroupFence, {added, registers});
    const ValueId columns = b_.Times(place.stage, addend.b.elements());
    std::vector<std::pair<int64_t, ValueId>> of = {{0, addend.b.shared}};  // A's place, and B
    if (shape_.three_tf32)
      of.insert(of.end(), {{kStageRegisters, low_of_b_}, {kStageRegisters, addend.b.shared}});
    bool alone = shape_.three_tf32;
    for (const auto& [part, of_b] : of)
      for (int64_t product = 0; product < kMmasOfStage; ++product) {
        b_.Do(Code::kGroupMma,
              {added, registers, b_.Int(part + product * kWgmmaRegistersOfA), of_b,
               b_.Plus(columns, b_.Int(product * WgmmaDepth(ByteWidth(DType::kF32))))},
              {tile_.columns, 0, 0, alone ? 1 : 0});
        alone = false;
      }
    b_.Do(Code::kGroupCommit);
  }

  void WaitForParts(const StepPlace& place) {
    if (makes_parts_) b_.Do(Code::kBarrierWait, {barriers_, PartsMade(place.stage), place.parity});
  }

  // ---- products

  void Consume(ValueId consumer) {
    const int64_t elements = tile_.columns / 2;
    const bool by_stage = SumsByStage(shape_);
    const ValueId sums = b_.Alloc(Space::kPrivate, DType::kF32, elements);
    const ValueId added = by_stage ? b_.Alloc(Space::kPrivate, DType::kF32, elements) : sums;
    const ValueId registers = a_in_registers_
                                  ? b_.Alloc(Space::kPrivate, DType::kU32,
                                             (shape_.three_tf32 ? 2 : 1) * kStageRegisters)
                                  : ValueId{-1};
    const ValueId in_group = b_.Modulo(thread_, kWarpgroupThreads);
    const ValueId speaks = b_.Less(in_group, b_.Int(Partners()));
    const auto multiply = [&](const RingAddend& addend, const StepPlace& place) {
      b_.Do(Code::kBarrierWait, {barriers_, Full(place.stage), place.parity});
      WaitForParts(place);
      b_.Do(Code::kGroupFence, {added});
      const ValueId rows = b_.Plus(b_.Times(place.stage, addend.a.elements()),
                                   b_.Times(consumer, kWgmmaRows * depth_));
      const ValueId columns = b_.Times(place.stage, addend.b.elements());
      for (int64_t product = 0; product < kMmasOfStage; ++product) {
        const int64_t step = product * WgmmaDepth(ByteWidth(shape_.dtype));
        const auto at = [&](const RingOperand& operand, ValueId first) {
          return b_.Plus(first, b_.Int(step * (operand.leading() > 0 ? operand.wide() : 1)));
        };
        b_.Do(Code::kGroupMma,
              {added, addend.a.shared, at(addend.a, rows), addend.b.shared, at(addend.b, columns)},
              {tile_.columns, addend.a.leading(), addend.b.leading(),
               by_stage && product == 0 ? 1 : 0});
      }
      b_.Do(Code::kGroupCommit);
    };
    const auto release = [&](ValueId stage) {
      // One thread for each block that copies to this stage.
      const ValueId one = b_.If(speaks);
      if (Partners() == 1)
        b_.Do(Code::kBarrierArrive, {barriers_, Empty(stage)});
      else
        b_.Do(Code::kBarrierArrive, {barriers_, Empty(stage), in_group});
      b_.EndIf(one);
    };
    ForTiles([&](ValueId round, const TilePlace& place) {
      for (int64_t e = 0; e < elements; ++e) b_.Store(sums, b_.Int(e), b_.Const(DType::kF32, 0));
      if (by_stage || a_in_registers_) {
        for (int64_t e = 0; by_stage && e < elements; ++e)
          b_.Store(added, b_.Int(e), b_.Const(DType::kF32, 0));
        // While one warpgroup adds or loads, the unit multiplies for the other.
        for (const RingAddend& addend : runs_of_equal_layout_) {
          const ValueId step = b_.Loop(addend.steps);
          const StepPlace at = PlaceOfStep(round, addend, step);
          if (a_in_registers_) {
            MultiplyRegisters(addend, at, added, registers, consumer);
            b_.Do(Code::kGroupWait, {added, registers}, {0, 0, 0});
          } else {
            multiply(addend, at);
            b_.Do(Code::kGroupWait, {added}, {0, 0, 0});
          }
          release(at.stage);
          for (int64_t e = 0; by_stage && e < elements; ++e)
            b_.Store(sums, b_.Int(e),
                     b_.Alu(Op::kAdd, DType::kF32,
                            {b_.Load(sums, b_.Int(e)), b_.Load(added, b_.Int(e))}));
          b_.End(step);
        }
        return Leave(sums, consumer, place);
      }
      multiply(addends_[0], PlaceOfStep(round, b_.Int(0)));
      for (const RingAddend& addend : runs_of_equal_layout_) {
        const int64_t done = addend.before == 0 ? 1 : 0;
        const ValueId counter = b_.Loop(addend.steps - done);
        const ValueId step = b_.Plus(counter, b_.Int(addend.before + done));
        multiply(addend, PlaceOfStep(round, step));
        b_.Do(Code::kGroupWait, {sums}, {1, 0, 0});
        release(StageBefore(round, step));
        b_.End(counter);
      }
      b_.Do(Code::kGroupWait, {sums}, {0, 0, 0});
      release(PlaceOfStep(round, b_.Int(steps_ - 1)).stage);
      Leave(sums, consumer, place);
    });
  }

  void Leave(ValueId sums, ValueId consumer, const TilePlace& place) {
    if (tile_.split > 1) return LeavePartialSums(sums, consumer);
    Write({sums, consumer, {place.batch, place.row, place.column}, tile_.columns});
  }

  void Write(const SumTile& tile) {
    if (shape_.three_tf32) ComputeAgain(b_, shape_, thread_, tile);
    results_.Write(tile);
  }

  // ---- partial sums, of the blocks of a cluster

  static constexpr int64_t kTogether = 4;  // 16 bytes: threads side by side use all banks

  // Of a warpgroup: [element / 4][thread][element % 4].
  ValueId PartialSumOf(ValueId consumer, ValueId element_four) {
    const int64_t fours = tile_.columns / 2 / kTogether;
    return b_.Plus(
        b_.Times(b_.Plus(b_.Times(consumer, fours), element_four), kWarpgroupThreads * kTogether),
        b_.Times(b_.Modulo(thread_, kWarpgroupThreads), kTogether));
  }

  void LeavePartialSums(ValueId sums, ValueId consumer) {
    for (int64_t e = 0; e < tile_.columns / 2; e += kTogether) {
      Instruction four{.code = Code::kLanes, .dtype = DType::kF32, .lanes = kTogether};
      for (int64_t i = 0; i < kTogether; ++i) four.src.push_back(b_.Load(sums, b_.Int(e + i)));
      b_.Store(partial_sums_, PartialSumOf(consumer, b_.Int(e / kTogether)),
               b_.Add(std::move(four)));
    }
  }

  // Each block joins the partial sums of some columns, in the order of blocks.
  void JoinPartialSums(ValueId consumer) {
    const int64_t columns = tile_.columns / tile_.split, elements = columns / 2;
    const ValueId sums = b_.Alloc(Space::kPrivate, DType::kF32, elements);
    for (int64_t e = 0; e < elements; e += kTogether) {
      const ValueId four = b_.Plus(b_.Times(rank_, elements / kTogether), b_.Int(e / kTogether));
      ValueId total = -1;
      for (int64_t rank = 0; rank < tile_.split; ++rank) {
        const ValueId partial =
            b_.Add({.code = Code::kClusterLoad,
                    .dtype = DType::kF32,
                    .lanes = kTogether,
                    .src = {partial_sums_, PartialSumOf(consumer, four), b_.Int(rank)}});
        total = rank == 0 ? partial : b_.Alu(Op::kAdd, DType::kF32, {total, partial});
      }
      for (int64_t i = 0; i < kTogether; ++i)
        b_.Store(
            sums, b_.Int(e + i),
            b_.Add({.code = Code::kLane, .dtype = DType::kF32, .src = {total}, .imm = {i, 0, 0}}));
    }
    const TilePlace place = PlaceOf(b_.Divide(block_, tile_.split));
    Write({sums,
           consumer,
           {place.batch, place.row, b_.Plus(place.column, b_.Times(rank_, columns))},
           columns});
  }

  const HopperShape& shape_;
  const HopperTile& tile_;
  const ProductStores& stores_;
  const ProductGathers& gathers_;
  ProgramBuilder& b_;
  const int64_t tiles_m_, tiles_n_, tiles_, blocks_;
  const int64_t depth_;  // of a stage
  std::vector<RingAddend> addends_;
  std::vector<RingAddend> runs_of_equal_layout_;  // addends in a row, for who multiplies
  const int64_t steps_;               // of a block
  const bool turns_b_, makes_parts_;  // whether B is turned, or written otherwise
  const bool a_in_registers_;
  ResultWriter results_;
  ValueId block_ = -1, thread_ = -1, rank_ = -1, barriers_ = -1;
  ValueId partial_sums_ = -1;  // with `split`
  ValueId low_of_b_ = -1;      // with three products
};

}  // namespace

void AddHopperProduct(ProgramBuilder& b, const HopperShape& shape, const HopperTile& tile,
                      const ProductStores& stores, const ProductGathers& gathers) {
  ProductBuilder(b, shape, tile, stores, gathers).Build();
}

}  // namespace outboard::program
