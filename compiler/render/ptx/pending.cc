// What this printer cannot print yet: kernels with these instructions are UNIMPLEMENTED.
#include "compiler/render/ptx/ptx_printer.h"

namespace outboard::render {

#define OUTBOARD_PENDING(what) \
  if (missing_.ok()) missing_ = absl::UnimplementedError("this printer has no " what)

Operand PtxPrinter::Packed(ValueId, int) {
  OUTBOARD_PENDING("matrix units");
  return Integer(0);
}
PtxPrinter::Values PtxPrinter::MatrixProduct(ValueId) {
  OUTBOARD_PENDING("matrix units");
  return Values(4, Integer(0));
}
PtxPrinter::Values PtxPrinter::LoadMatrices(ValueId n) {
  OUTBOARD_PENDING("matrix units");
  return Values(static_cast<size_t>(at(n).lanes), Integer(0));
}
PtxPrinter::Values PtxPrinter::NarrowToPairs(ValueId n) {
  OUTBOARD_PENDING("pairs");
  return Values(static_cast<size_t>(at(n).lanes), Integer(0));
}
PtxPrinter::Values PtxPrinter::Shuffle(ValueId) {
  OUTBOARD_PENDING("shuffles");
  return {Integer(0)};
}
void PtxPrinter::Copy(ValueId) { OUTBOARD_PENDING("copies"); }
void PtxPrinter::Await(ValueId) { OUTBOARD_PENDING("copies"); }
Address PtxPrinter::SwizzledAddress(ValueId, ValueId, int) {
  OUTBOARD_PENDING("swizzles");
  return {};
}
Address PtxPrinter::SwizzledTarget(ValueId, int) {
  OUTBOARD_PENDING("swizzles");
  return {};
}
void PtxPrinter::PrintHopper(ValueId) { OUTBOARD_PENDING("instructions of sm_90a"); }
PtxPrinter::Values PtxPrinter::LoadOfCluster(ValueId n) {
  OUTBOARD_PENDING("clusters");
  return Values(static_cast<size_t>(at(n).lanes), Integer(0));
}
bool PtxPrinter::IsAccumulator(ValueId) const { return false; }
Operand PtxPrinter::NotAccumulator(const Operand& value) { return value; }

}  // namespace outboard::render
