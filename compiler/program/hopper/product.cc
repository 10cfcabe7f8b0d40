#include "compiler/program/hopper/product.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/program/hopper/product_copies.h"
#include "compiler/program/hopper/product_ring.h"
#include "compiler/program/hopper/ring.h"
#include "compiler/program/hopper/tf32_stage.h"
#include "compiler/program/hopper/two_tf32.h"
#include "compiler/target.h"

namespace outboard::program {
namespace {

constexpr int64_t kMmasOfStage = kProductsOfStage;
// 65,536 registers are 168 for each of 384 threads. What the first warpgroup gives up, the others
// get.
constexpr int64_t kProducerRegisters = 40, kConsumerRegisters = 232;
// Who transposes B holds squares of it.
constexpr int64_t kTransposerRegisters = 96, kConsumerRegistersBeside = 200;
// Who gathers holds the places of its pieces, and of single elements those, too.
constexpr int64_t kGathererRegisters = 136, kConsumerRegistersBesideGathers = 184;
constexpr int64_t kRegistersBesideElements = 168;  // all have as many

class ProductBuilder {
 public:
  ProductBuilder(ProgramBuilder& b, const HopperShape& shape, const HopperTile& tile,
                 const ProductStores& stores, const ProductGathers& gathers)
      : stores_(stores),
        b_(b),
        ring_(b, shape, tile),
        copies_(b, ring_, gathers),
        a_in_registers_(shape.three_tf32 || (shape.dtype == DType::kF32 && AnyAAlongRows(shape))),
        results_(b, shape.results, stores, shape.m, shape.n, ring_.CutsRows(),
                 ring_.CutsColumns()) {}

  void Build() {
    b_.SetCluster(ring_.tile.cluster * ring_.tile.split);
    ring_.OpenOperands();
    results_.Open(ring_.thread, ring_.shape.batch);
    if (ring_.tile.split > 1)
      partial_sums_ = b_.Alloc(Space::kShared, DType::kF32, ring_.tile.rows * ring_.tile.columns);
    ring_.OpenBarriers();
    ValueId needed = -1;
    if (stores_.needed) {
      const TilePlace place = ring_.PlaceOfCluster();
      needed = stores_.needed(place.batch, place.row, place.column);
    }
    const ValueId group = b_.Divide(ring_.thread, kWarpgroupThreads);
    const ValueId produces = b_.If(b_.Alu(Op::kCmpEq, DType::kBool, {group, b_.Int(0)}));
    b_.Do(Code::kMaxRegisters, {}, {RegistersOfProducer(), 0, 0});
    if (ring_.Gathers()) {
      copies_.ProduceTogether();
    } else {
      const ValueId one = b_.If(b_.Less(ring_.thread, b_.Int(1)));
      copies_.Produce();
      b_.EndIf(one);
    }
    if (ring_.makes_parts) {
      const ValueId makes =
          b_.If(b_.Less(b_.Int(kWarpgroupThreads - kPartMakers - 1), ring_.thread));
      copies_.MakeParts();
      b_.EndIf(makes);
    }
    ring_.MeetCluster();
    if (ring_.tile.split > 1) ring_.MeetCluster();
    b_.EndIf(produces);
    const ValueId consumes = b_.If(b_.Less(b_.Int(0), group));
    b_.Do(Code::kMaxRegisters, {}, {RegistersOfConsumer(), 1, 0});
    const ValueId consumer = b_.Plus(group, b_.Int(-1));
    Consume(consumer);
    if (ring_.tile.split > 1) {
      ring_.MeetCluster();
      JoinPartialSums(consumer);
    }
    results_.Finish();
    ring_.MeetCluster();
    b_.EndIf(consumes);
    if (needed >= 0) b_.EndIf(needed);
  }

 private:
  int64_t RegistersOfProducer() const {
    if (GathersElements(ring_.shape)) return kRegistersBesideElements;
    if (ring_.Gathers()) return kGathererRegisters;
    return ring_.transposes_b ? kTransposerRegisters : kProducerRegisters;
  }
  int64_t RegistersOfConsumer() const {
    if (GathersElements(ring_.shape)) return kRegistersBesideElements;
    if (ring_.Gathers()) return kConsumerRegistersBesideGathers;
    return ring_.transposes_b ? kConsumerRegistersBeside : kConsumerRegisters;
  }

  // ---- two TF32 for each f32

  // A stage whose A is in registers. In three products low * high, high * low and high * high: what
  // is small is summed first.
  void MultiplyRegisters(const RingAddend& addend, const StepPlace& place, ValueId added,
                         ValueId registers, ValueId consumer) {
    b_.Do(Code::kMbWait, {ring_.barriers, ring_.Full(place.stage), place.parity});
    LoadStageOfA(b_,
                 {addend.a.shared, b_.Times(place.stage, addend.a.elements()), addend.a.along_rows},
                 consumer, ring_.thread, ring_.shape.three_tf32, registers);
    WaitForParts(place);
    // All have read A before one of them says that the stage is empty.
    b_.Do(Code::kWgSync);
    b_.Do(Code::kWgFence, {added, registers});
    const ValueId columns = b_.Times(place.stage, addend.b.elements());
    std::vector<std::pair<int64_t, ValueId>> of = {{0, addend.b.shared}};  // A's place, and B
    if (ring_.shape.three_tf32)
      of.insert(of.end(), {{kStageRegisters, ring_.low_of_b}, {kStageRegisters, addend.b.shared}});
    bool alone = ring_.shape.three_tf32;
    for (const auto& [part, of_b] : of)
      for (int64_t product = 0; product < kMmasOfStage; ++product) {
        b_.Do(Code::kWgmma,
              {added, registers, b_.Int(part + product * kWgmmaRegistersOfA), of_b,
               b_.Plus(columns, b_.Int(product * WgmmaDepth(ByteWidth(DType::kF32))))},
              {ring_.tile.columns, 0, 0, alone ? 1 : 0});
        alone = false;
      }
    b_.Do(Code::kWgCommit);
  }

  void WaitForParts(const StepPlace& place) {
    if (ring_.makes_parts)
      b_.Do(Code::kMbWait, {ring_.barriers, ring_.PartsMade(place.stage), place.parity});
  }

  // ---- products

  void Consume(ValueId consumer) {
    const int64_t elements = ring_.tile.columns / 2;
    const bool by_stage = SumsByStage(ring_.shape);
    const ValueId sums = b_.Alloc(Space::kPrivate, DType::kF32, elements);
    const ValueId added = by_stage ? b_.Alloc(Space::kPrivate, DType::kF32, elements) : sums;
    const ValueId registers = a_in_registers_
                                  ? b_.Alloc(Space::kPrivate, DType::kU32,
                                             (ring_.shape.three_tf32 ? 2 : 1) * kStageRegisters)
                                  : ValueId{-1};
    const ValueId in_group = b_.Modulo(ring_.thread, kWarpgroupThreads);
    const ValueId speaks = b_.Less(in_group, b_.Int(ring_.Partners()));
    const auto multiply = [&](const RingAddend& addend, const StepPlace& place) {
      b_.Do(Code::kMbWait, {ring_.barriers, ring_.Full(place.stage), place.parity});
      WaitForParts(place);
      b_.Do(Code::kWgFence, {added});
      const ValueId rows = b_.Plus(b_.Times(place.stage, addend.a.elements()),
                                   b_.Times(consumer, kWgmmaRows * ring_.depth));
      const ValueId columns = b_.Times(place.stage, addend.b.elements());
      for (int64_t product = 0; product < kMmasOfStage; ++product) {
        const int64_t step = product * WgmmaDepth(ByteWidth(ring_.shape.dtype));
        const auto at = [&](const RingOperand& operand, ValueId first) {
          return b_.Plus(first, b_.Int(step * (operand.leading() > 0 ? operand.wide() : 1)));
        };
        b_.Do(Code::kWgmma,
              {added, addend.a.shared, at(addend.a, rows), addend.b.shared, at(addend.b, columns)},
              {ring_.tile.columns, addend.a.leading(), addend.b.leading(),
               by_stage && product == 0 ? 1 : 0});
      }
      b_.Do(Code::kWgCommit);
    };
    const auto release = [&](ValueId stage) {
      // One thread for each block that copies to this stage.
      const ValueId one = b_.If(speaks);
      if (ring_.Partners() == 1)
        b_.Do(Code::kMbArrive, {ring_.barriers, ring_.Empty(stage)});
      else
        b_.Do(Code::kMbArrive, {ring_.barriers, ring_.Empty(stage), in_group});
      b_.EndIf(one);
    };
    ring_.ForTiles([&](ValueId round, const TilePlace& place) {
      for (int64_t e = 0; e < elements; ++e) b_.Store(sums, b_.Int(e), b_.Const(DType::kF32, 0));
      if (by_stage || a_in_registers_) {
        for (int64_t e = 0; by_stage && e < elements; ++e)
          b_.Store(added, b_.Int(e), b_.Const(DType::kF32, 0));
        // While one warpgroup adds or loads, the unit multiplies for the other.
        for (const RingAddend& addend : ring_.runs_of_equal_layout) {
          const ValueId step = b_.Loop(addend.steps);
          const StepPlace at = ring_.PlaceOfStep(round, addend, step);
          if (a_in_registers_) {
            MultiplyRegisters(addend, at, added, registers, consumer);
            b_.Do(Code::kWgWait, {added, registers}, {0, 0, 0});
          } else {
            multiply(addend, at);
            b_.Do(Code::kWgWait, {added}, {0, 0, 0});
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
      multiply(ring_.addends[0], ring_.PlaceOfStep(round, b_.Int(0)));
      for (const RingAddend& addend : ring_.runs_of_equal_layout) {
        const int64_t done = addend.before == 0 ? 1 : 0;
        const ValueId counter = b_.Loop(addend.steps - done);
        const ValueId step = b_.Plus(counter, b_.Int(addend.before + done));
        multiply(addend, ring_.PlaceOfStep(round, step));
        b_.Do(Code::kWgWait, {sums}, {1, 0, 0});
        release(ring_.StageBefore(round, step));
        b_.End(counter);
      }
      b_.Do(Code::kWgWait, {sums}, {0, 0, 0});
      release(ring_.PlaceOfStep(round, b_.Int(ring_.steps - 1)).stage);
      Leave(sums, consumer, place);
    });
  }

  void Leave(ValueId sums, ValueId consumer, const TilePlace& place) {
    if (ring_.tile.split > 1) return LeavePartialSums(sums, consumer);
    Write({sums, consumer, {place.batch, place.row, place.column}, ring_.tile.columns});
  }

  void Write(const SumTile& tile) {
    if (ring_.shape.three_tf32) ComputeAgain(b_, ring_.shape, ring_.thread, tile);
    results_.Write(tile);
  }

  // ---- partial sums, of the blocks of a cluster

  static constexpr int64_t kTogether = 4;  // 16 bytes: threads side by side use all banks

  // Of a warpgroup: [element / 4][thread][element % 4].
  ValueId PartialSumOf(ValueId consumer, ValueId element_four) {
    const int64_t fours = ring_.tile.columns / 2 / kTogether;
    return b_.Plus(
        b_.Times(b_.Plus(b_.Times(consumer, fours), element_four), kWarpgroupThreads * kTogether),
        b_.Times(b_.Modulo(ring_.thread, kWarpgroupThreads), kTogether));
  }

  void LeavePartialSums(ValueId sums, ValueId consumer) {
    for (int64_t e = 0; e < ring_.tile.columns / 2; e += kTogether) {
      Instruction four{.code = Code::kLanes, .dtype = DType::kF32, .lanes = kTogether};
      for (int64_t i = 0; i < kTogether; ++i) four.src.push_back(b_.Load(sums, b_.Int(e + i)));
      b_.Store(partial_sums_, PartialSumOf(consumer, b_.Int(e / kTogether)),
               b_.Add(std::move(four)));
    }
  }

  // Each block joins the partial sums of some columns, in the order of blocks.
  void JoinPartialSums(ValueId consumer) {
    const int64_t columns = ring_.tile.columns / ring_.tile.split, elements = columns / 2;
    const ValueId sums = b_.Alloc(Space::kPrivate, DType::kF32, elements);
    for (int64_t e = 0; e < elements; e += kTogether) {
      const ValueId four =
          b_.Plus(b_.Times(ring_.rank, elements / kTogether), b_.Int(e / kTogether));
      ValueId total = -1;
      for (int64_t rank = 0; rank < ring_.tile.split; ++rank) {
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
    const TilePlace place = ring_.PlaceOfCluster();
    Write({sums,
           consumer,
           {place.batch, place.row, b_.Plus(place.column, b_.Times(ring_.rank, columns))},
           columns});
  }

  const ProductStores& stores_;
  ProgramBuilder& b_;
  ProductRing ring_;
  ProductCopies copies_;
  const bool a_in_registers_;
  ResultWriter results_;
  ValueId partial_sums_ = -1;  // with `split`
};

}  // namespace

void AddHopperProduct(ProgramBuilder& b, const HopperShape& shape, const HopperTile& tile,
                      const ProductStores& stores, const ProductGathers& gathers) {
  ProductBuilder(b, shape, tile, stores, gathers).Build();
}

}  // namespace outboard::program
