/* What TensorFlow's C API for profilers calls (tensorflow/c/experimental/pluggable_profiler); the rest is Python's:
 * jobs/profiler/tensorflow_profiles.py. */
#include "hooks.h"

EXPORTED void (*profiler_joins)(void *params, void *status); /* set by Python before it has TensorFlow load this */
EXPORTED void profiler_nothing(void *nothing);
EXPORTED void TF_InitProfiler(void *params, void *status);

void profiler_nothing(void *nothing) { (void)nothing; } /* at the end of the process, when no Python can be called */

void TF_InitProfiler(void *params, void *status) {
    if (profiler_joins) profiler_joins(params, status);
}
