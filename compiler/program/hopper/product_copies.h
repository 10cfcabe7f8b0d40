// What the first warpgroup of a product does (product.h): it copies operands to the ring, or
// gathers them; and of f32 two of its warps transpose B or write B's low parts.
#pragma once

#include <cstdint>

#include "compiler/program/hopper/product.h"
#include "compiler/program/hopper/product_ring.h"
#include "compiler/program/program.h"

namespace outboard::program {

class ProductCopies {
 public:
  ProductCopies(ProgramBuilder& b, ProductRing& ring, const ProductGathers& gathers)
      : b_(b), ring_(ring), gathers_(gathers) {}

  // By one thread: copies boxes of all steps of the block.
  void Produce();
  // By all threads of the first warpgroup. Copies of `behind` steps are under way while those of
  // the next one begin; at the end of a tile all are waited for. Two stages more: a stage is empty
  // again only when the one after it is full.
  void ProduceTogether();
  // By the two warps of the first warpgroup that do not copy: transposes B, or writes its low
  // parts.
  void MakeParts();

 private:
  void WaitUntilEmpty(const StepPlace& at);
  // Of k. Beyond its end there are zeros.
  ValueId StartOf(const RingAddend& addend, ValueId step);
  void FetchBoxes(const RingAddend& addend, ValueId stage, ValueId k, const TilePlace& place);
  void Gather(const RingOperand& staged, const HopperOperand& operand, const GatherPlaces& places,
              ValueId stage, const TilePlace& place, ValueId k);
  // The thread's part of a stage is there, when all but its copies of the last `left` steps are.
  void Deliver(ValueId stage, int64_t left);
  // With partners: a part of the boxes, or of the one box, each of which goes to all of them.
  void Fetch(const RingOperand& operand, const HopperOperand& of, ValueId stage, ValueId k,
             ValueId row, ValueId batch, int64_t partners);

  ProgramBuilder& b_;
  ProductRing& ring_;
  const ProductGathers& gathers_;
};

}  // namespace outboard::program
