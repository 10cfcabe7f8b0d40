#include "tests/gpu/ptx/execution.h"
namespace outboard::ptx {
struct BulkGroup {};
struct PendingProduct {};
void Execution::FinishCopies(Block*) {}
bool Execution::DeliverOne() { return false; }
bool Execution::Mbarrier(Warp*, Group*, const Instruction&, uint32_t) { Fail(absl::UnimplementedError("mbarrier")); return false; }
bool Execution::Bulk(Warp*, Group*, const Instruction&, uint32_t) { Fail(absl::UnimplementedError("bulk")); return false; }
bool Execution::Wgmma(Warp*, Group*, const Instruction&, uint32_t) { Fail(absl::UnimplementedError("wgmma")); return false; }
void Execution::CheckPendingRows(Warp*, const Instruction&, uint32_t) {}
}
