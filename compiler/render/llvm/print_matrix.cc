// Tiles of a program: the processor's own registers, which LLVM neither allots nor saves here. Each
// tile ALLOC is the next register. They are laid out once a call of the kernel.
#include <llvm/IR/IntrinsicsX86.h>

#include <array>

#include "base/check.h"
#include "compiler/render/llvm/program_printer.h"

namespace outboard::render {

using llvm::Value;
using program::Code;
using program::Instruction;
using program::Space;

namespace {
constexpr int kTileRows = 16, kTileRowBytes = 64;
}

// Eight tiles of 16 rows of 64 bytes. Who loads a kernel that names outboard_tiles has seen to it
// that the system lets this process use them.
void ProgramPrinter::OpenTiles() {
  for (size_t n = 0; n < program_.code.size(); ++n) {
    const Instruction& i = program_.code[n];
    if (i.code == Code::kAlloc && i.imm[0] == static_cast<int64_t>(Space::kTile))
      tiles_.emplace(static_cast<ValueId>(n), static_cast<int>(tiles_.size()));
  }
  if (tiles_.empty()) return;
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
  global->setAlignment(llvm::Align(64));
  b_.CreateIntrinsic(llvm::Intrinsic::x86_ldtilecfg, {}, {global});
}

// A thread whose tiles are empty costs nothing to switch.
void ProgramPrinter::CloseTiles() {
  if (!tiles_.empty()) b_.CreateIntrinsic(llvm::Intrinsic::x86_tilerelease, {}, {});
}

void ProgramPrinter::TileInstruction(ValueId n) {
  const Instruction& i = at(n);
  const auto tile = [&](int s) -> Value* { return b_.getInt8(tiles_.at(i.src[s])); };
  switch (i.code) {
    case Code::kTileZero: b_.CreateIntrinsic(llvm::Intrinsic::x86_tilezero, {}, {tile(0)}); return;
    case Code::kTileLoad:
    case Code::kTileStore: {
      const Memory& memory = memories_.at(i.src[1]);
      b_.CreateIntrinsic(i.code == Code::kTileLoad ? llvm::Intrinsic::x86_tileloadd64
                                                   : llvm::Intrinsic::x86_tilestored64,
                         {},
                         {tile(0), Address(i.src[1], i.src[2]),
                          b_.getInt64(static_cast<uint64_t>(i.imm[0] * memory.width))});
      return;
    }
    case Code::kTileDot:
      b_.CreateIntrinsic(llvm::Intrinsic::x86_tdpbf16ps, {}, {tile(0), tile(1), tile(2)});
      return;
    default: OB_CHECK(false && "no instruction of tiles");
  }
}

}  // namespace outboard::render
