// A kernel that calls what kernels may not call.
#include <stdint.h>
#include <stdlib.h>
void escape(void* const* buffers, int64_t begin, int64_t end) { (void)buffers; (void)end; if (begin == 7) system("true"); }
