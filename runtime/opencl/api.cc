#include "runtime/opencl/api.h"

#include <dlfcn.h>

namespace outboard::opencl {

const Api* LoadApi() {
  static const Api* const loaded = []() -> const Api* {
    void* const library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return nullptr;
    static Api api;
    bool complete = true;
#define OUTBOARD_OPENCL_LOAD(name)                                        \
  api.name = reinterpret_cast<decltype(api.name)>(dlsym(library, #name)); \
  complete = complete && api.name != nullptr;
    OUTBOARD_OPENCL_FUNCTIONS(OUTBOARD_OPENCL_LOAD)
#undef OUTBOARD_OPENCL_LOAD
    return complete ? &api : nullptr;
  }();
  return loaded;
}

}  // namespace outboard::opencl
