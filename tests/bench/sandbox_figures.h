// What the sandbox costs: `executor_start_ms_p50` and `sandbox_step_ratio`.
#pragma once

namespace outboard::bench {

void SandboxFigures();

}  // namespace outboard::bench
