#include "worker/process/lowest_priority.h"

#include <sched.h>
#include <sys/resource.h>

namespace outboard::worker {

void TakeLowestPriority() {
  setpriority(PRIO_PROCESS, 0, 19);
  const sched_param none{};
  sched_setscheduler(0, SCHED_IDLE, &none);
}

}  // namespace outboard::worker
