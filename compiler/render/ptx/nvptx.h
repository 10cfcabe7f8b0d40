// The renderer that prints PTX itself.
#pragma once

#include "compiler/render/llvm/nvptx.h"

namespace outboard::render {

// As MakeNvptxRenderer.
absl::StatusOr<std::unique_ptr<NvptxRenderer>> MakePtxRenderer(Target target);

}  // namespace outboard::render
