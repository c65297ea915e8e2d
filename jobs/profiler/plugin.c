/* Define the function that TensorFlow's C API for profilers calls (tensorflow/c/experimental/pluggable_profiler). All
 * other functions of the plug-in are Python code in jobs/profiler/tensorflow_profiles.py. */
#include "hooks.h"

/* Python sets this pointer before TensorFlow loads this library. */
EXPORTED void (*profiler_joins)(void *params, void *status);
EXPORTED void profiler_nothing(void *nothing);
EXPORTED void TF_InitProfiler(void *params, void *status);

/* TensorFlow calls this function at the end of the process, when a Python function can no longer be called. */
void profiler_nothing(void *nothing) { (void)nothing; }

void TF_InitProfiler(void *params, void *status) {
    if (profiler_joins) profiler_joins(params, status);
}
