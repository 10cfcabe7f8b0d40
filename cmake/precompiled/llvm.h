// Precompiled for the renderers: base.h and what most of them use of LLVM.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/raw_ostream.h>

#include "cmake/precompiled/base.h"
