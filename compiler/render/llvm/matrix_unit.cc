// Sums of products of bf16 by instructions made for them
// (compiler/optimize/operands/matrix_unit.h).
//
// Tiles are the processor's own registers, which LLVM neither allots nor saves here: 0 to 3 hold
// the sums of up to four squares of 16 rows by 16 columns, 4 and 5 a step's columns, 6 and 7 its
// rows in turn. They are laid out once a call of the kernel. Sums leave them by way of memory,
// where a result's vector is read back.
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "compiler/render/llvm/emitter.h"

namespace outboard::render {

using codegen::Bf16Products;
using codegen::kCoreColumns;
using codegen::kCoreColumnTilesMax;
using codegen::kCoreSteps;
using codegen::kCoreTilesMax;
using codegen::TensorCore;
using llvm::Align;
using llvm::Type;
using llvm::Value;

namespace {

constexpr int kTileRows = 16, kTileRowBytes = 64;
constexpr int kTileElements = kTileRows * kCoreColumns;  // of f32
constexpr int kFirstColumnTile = kCoreTilesMax;
constexpr int kFirstRowTile = kFirstColumnTile + kCoreColumnTilesMax;

int TilesOf(size_t count) { return static_cast<int>((count + kTileRows - 1) / kTileRows); }

}  // namespace

struct KernelEmitter::CoreSums {
  const codegen::GroupPlan* plan = nullptr;
  size_t rows = 0, vectors = 0;          // of the tile of results
  llvm::AllocaInst* memory = nullptr;    // kTiles: [row of tiles][column][16][16]
  std::vector<llvm::AllocaInst*> slots;  // kVectors: [row][vector], which LLVM turns to registers
};

bool KernelEmitter::UsesTiles() const {
  return std::any_of(plan_.groups.begin(), plan_.groups.end(), [](const auto& group) {
    return group.core && group.core->by == Bf16Products::kTiles;
  });
}

// Eight tiles of 16 rows of 64 bytes. Who loads a kernel that names outboard_tiles has seen to it
// that the system lets this process use them.
void KernelEmitter::OpenTiles() {
  if (!UsesTiles()) return;
  b_.CreateCall(module_.getOrInsertFunction("outboard_tiles",
                                            llvm::FunctionType::get(b_.getVoidTy(), false)));
  std::array<uint8_t, 64> layout = {1};  // the palette
  for (int tile = 0; tile < 8; ++tile) {
    layout[16 + 2 * tile] = kTileRowBytes;
    layout[48 + tile] = kTileRows;
  }
  auto* const data = llvm::ConstantDataArray::get(b_.getContext(), layout);
  auto* const global = new llvm::GlobalVariable(module_, data->getType(), /*isConstant=*/true,
                                                llvm::GlobalValue::PrivateLinkage, data, "tiles");
  global->setAlignment(Align(64));
  b_.CreateIntrinsic(llvm::Intrinsic::x86_ldtilecfg, {}, {global});
}

// A thread whose tiles are empty costs nothing to switch.
void KernelEmitter::CloseTiles() {
  if (UsesTiles()) b_.CreateIntrinsic(llvm::Intrinsic::x86_tilerelease, {}, {});
}

void KernelEmitter::TensorCoreGroup(int index) {
  const codegen::ReduceGroup& group = kernel_.groups[index];
  CoreSums sums;
  sums.plan = &plan_.groups[index];
  const TensorCore& core = *sums.plan->core;
  sums.rows = bound_[core.row_range].pieces->size();
  sums.vectors = bound_[core.column_range].pieces->size();
  const bool tiles = core.by == Bf16Products::kTiles;
  const int tile_count = TilesOf(sums.rows) * static_cast<int>(sums.vectors);
  auto* const vector = llvm::FixedVectorType::get(b_.getFloatTy(), kCoreColumns);
  llvm::BasicBlock& entry = function_->getEntryBlock();
  b_.SetInsertPoint(&entry, entry.begin());
  if (tiles) {
    sums.memory =
        b_.CreateAlloca(llvm::ArrayType::get(b_.getFloatTy(), tile_count * kTileElements));
    sums.memory->setAlignment(Align(64));
  } else {
    for (size_t i = 0; i < sums.rows * sums.vectors; ++i)
      sums.slots.push_back(b_.CreateAlloca(vector));
  }
  scopes_->EnterCurrent();
  for (int i = 0; tiles && i < tile_count; ++i)
    b_.CreateIntrinsic(llvm::Intrinsic::x86_tilezero, {}, {b_.getInt8(i)});
  for (llvm::AllocaInst* slot : sums.slots)
    b_.CreateStore(llvm::Constant::getNullValue(vector), slot);

  TensorCoreLoops(sums, 0);

  scopes_->EnterCurrent();
  for (int i = 0; tiles && i < tile_count; ++i) {
    Value* const place =
        b_.CreateGEP(b_.getFloatTy(), sums.memory, b_.getInt64(int64_t{i} * kTileElements));
    b_.CreateIntrinsic(llvm::Intrinsic::x86_tilestored64, {},
                       {b_.getInt8(i), place, b_.getInt64(kTileRowBytes)});
  }
  for (size_t row = 0; row < sums.rows; ++row)
    for (size_t column = 0; column < sums.vectors; ++column) {
      Value* place = nullptr;
      if (tiles) {
        const size_t tile = row / kTileRows * sums.vectors + column;
        const size_t element = tile * kTileElements + row % kTileRows * kCoreColumns;
        place =
            b_.CreateGEP(b_.getFloatTy(), sums.memory, b_.getInt64(static_cast<int64_t>(element)));
      } else {
        place = sums.slots[row * sums.vectors + column];
      }
      Value* const value = b_.CreateAlignedLoad(vector, place, Align(64));
      scopes_->at(ScopeOf(group.deps)).values[{group.nodes[0], PointOf(core, row, column)}] = value;
    }
}

// Depth: the number of the group's loops.
void KernelEmitter::TensorCoreLoops(CoreSums& sums, size_t level) {
  if (level < sums.plan->loops.size()) {
    OverTile(sums.plan->loops[level], [&] { TensorCoreLoops(sums, level + 1); });
    return;
  }
  scopes_->EnterCurrent();
  if (sums.plan->core->by == Bf16Products::kTiles) {
    TileStep(sums);
  } else {
    VectorStep(sums);
  }
}

Coords KernelEmitter::PointOf(const TensorCore& core, size_t row, size_t column) const {
  const auto place = [&](int range, size_t piece) {
    const int number = bound_[range].number;
    return number < 0 ? Coords{0} : Coords{piece} << (8 * number);
  };
  return place(core.row_range, row) | place(core.column_range, column);
}

int KernelEmitter::StageOf(const UOp* load) const {
  for (size_t i = 0; i < plan_.stages.size(); ++i)
    if (plan_.stages[i].load == load) return static_cast<int>(i);
  OB_CHECK(false && "the operands of a TC are copied");
  return -1;
}

int64_t KernelEmitter::PairElements(int columns) const {
  const TensorCore& core = *plan_.CoreOf(plan_.stages[columns].load);
  for (const codegen::StageDim& dim : stages_[columns].layout.dims)
    if (dim.range == core.inner_range) return 2 * dim.inside;
  return 0;
}

void KernelEmitter::TileStep(const CoreSums& sums) {
  const TensorCore& core = *sums.plan->core;
  const int row_stage = StageOf(core.rows), column_stage = StageOf(core.columns);
  const auto load = [&](int tile, Value* place, int64_t row_bytes) {
    b_.CreateIntrinsic(llvm::Intrinsic::x86_tileloadd64, {},
                       {b_.getInt8(tile), place, b_.getInt64(row_bytes)});
  };
  const auto vectors = static_cast<int>(sums.vectors);
  for (int column = 0; column < vectors; ++column)
    load(kFirstColumnTile + column, StagedPointer(column_stage, PointOf(core, 0, column)),
         PairElements(column_stage) * 2);
  for (int row = 0; row < TilesOf(sums.rows); ++row) {
    const int tile = kFirstRowTile + row % 2;
    load(tile, StagedPointer(row_stage, PointOf(core, size_t{kTileRows} * row, 0)), kTileRowBytes);
    for (int column = 0; column < vectors; ++column)
      b_.CreateIntrinsic(llvm::Intrinsic::x86_tdpbf16ps, {},
                         {b_.getInt8(row * vectors + column), b_.getInt8(tile),
                          b_.getInt8(kFirstColumnTile + column)});
  }
}

// A loop over the pairs of the step: a row's pair goes to all lanes.
void KernelEmitter::VectorStep(const CoreSums& sums) {
  const TensorCore& core = *sums.plan->core;
  Type* const halves = llvm::FixedVectorType::get(b_.getBFloatTy(), 2 * kCoreColumns);
  const int row_stage = StageOf(core.rows), column_stage = StageOf(core.columns);
  std::vector<Value*> rows, columns;
  for (size_t i = 0; i < sums.rows; ++i)
    rows.push_back(StagedPointer(row_stage, PointOf(core, i, 0)));
  for (size_t i = 0; i < sums.vectors; ++i)
    columns.push_back(StagedPointer(column_stage, PointOf(core, 0, i)));
  const int64_t column_row = PairElements(column_stage) / 2;  // in pairs
  Value* const pair = scopes_->OpenLoop(b_.getInt64(0), b_.getInt64(kCoreSteps / 2), 1, true);
  Type* const i32 = b_.getInt32Ty();
  std::vector<Value*> loaded;
  for (Value* column : columns) {
    Value* const place = b_.CreateGEP(i32, column, b_.CreateMul(pair, b_.getInt64(column_row)));
    loaded.push_back(b_.CreateAlignedLoad(halves, place, Align(64)));
  }
  for (size_t row = 0; row < sums.rows; ++row) {
    Value* const one = b_.CreateAlignedLoad(i32, b_.CreateGEP(i32, rows[row], pair), Align(4));
    Value* const all = b_.CreateBitCast(b_.CreateVectorSplat(kCoreColumns, one), halves);
    for (size_t column = 0; column < sums.vectors; ++column) {
      llvm::AllocaInst* const slot = sums.slots[row * sums.vectors + column];
      Value* const sum = b_.CreateLoad(slot->getAllocatedType(), slot);
      b_.CreateStore(b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512, {},
                                        {sum, all, loaded[column]}),
                     slot);
    }
  }
  scopes_->CloseLoop();
}

}  // namespace outboard::render
