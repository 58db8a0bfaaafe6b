/* A driver without a device: memory of the host, a kernel that copies its first array to its last, a clock of launches.
 * Real packages are loaded with it to show that every call that searchlab makes has the right name and arguments. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t word;
enum { OK = 0, INVALID = 1, NO_MEMORY = 2, UNKNOWN = 801, MOST = 1 << 24 };
static float now_ms;
static int dynamic_most = 48 << 10;

/* cuda.h gives many functions a version at their end */
#define CU(name, arguments) \
    int name arguments; \
    int name##_v2 arguments __attribute__((alias(#name))); \
    int name arguments

CU(cuInit, (unsigned flags)) { return OK; }
CU(cuDriverGetVersion, (int *version)) { *version = 13000; return OK; }
CU(cuDeviceGetCount, (int *count)) { *count = 1; return OK; }
CU(cuDeviceGet, (int *device, int number)) { *device = number; return number ? 101 : OK; }
CU(cuDeviceGetName, (char *name, int length, int device)) { snprintf(name, length, "stub"); return OK; }
CU(cuDeviceGetPCIBusId, (char *name, int length, int device)) { snprintf(name, length, "0000:01:00.0"); return OK; }
CU(cuDeviceGetAttribute, (int *value, int attribute, int device)) { *value = 1000 + attribute; return OK; }
CU(cuDevicePrimaryCtxRetain, (word *context, int device)) { *context = 17; return OK; }
CU(cuDevicePrimaryCtxRelease, (int device)) { return OK; }
CU(cuCtxPushCurrent, (word context)) { return context == 17 ? OK : INVALID; }
CU(cuCtxPopCurrent, (word *context)) { if (context) *context = 17; return OK; }
CU(cuCtxSetCurrent, (word context)) { return context == 17 ? OK : INVALID; }
CU(cuCtxGetDevice, (int *device)) { *device = 0; return OK; }
CU(cuCtxSynchronize, (void)) { return OK; }
CU(cuModuleLoadData, (word *module, const char *image)) {
    *module = 23;
    return strstr(image, ".entry") ? OK : 218;
}
CU(cuModuleLoadDataEx, (word *module, const char *image, unsigned count, void *options, void *values)) {
    return cuModuleLoadData(module, image);
}
CU(cuModuleUnload, (word module)) { return OK; }
CU(cuModuleGetFunction, (word *function, word module, const char *name)) {
    *function = 29;
    return strcmp(name, "kernel0") ? 500 : OK;
}
CU(cuFuncGetAttribute, (int *value, int attribute, word function)) { *value = 30 + attribute; return OK; }
CU(cuFuncSetAttribute, (word function, int attribute, int value)) {
    if (function != 29 || attribute != 8) return INVALID;
    dynamic_most = value;
    return OK;
}
CU(cuFuncSetBlockShape, (word function, int x, int y, int z)) { return OK; }
CU(cuMemAlloc, (word *address, size_t size)) {
    if (size > MOST) return NO_MEMORY;
    *address = (word)(uintptr_t)malloc(size);
    return OK;
}
CU(cuMemFree, (word address)) { free((void *)(uintptr_t)address); return OK; }
CU(cuMemcpyHtoD, (word to, const void *from, size_t size)) { memcpy((void *)(uintptr_t)to, from, size); return OK; }
CU(cuMemcpyDtoH, (void *to, word from, size_t size)) { memcpy(to, (void *)(uintptr_t)from, size); return OK; }
CU(cuMemsetD8Async, (word to, unsigned char value, size_t size, word stream)) {
    memset((void *)(uintptr_t)to, value, size);
    return OK;
}
CU(cuLaunchKernel, (word function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                    unsigned shared, word stream, void **parameters, void **extra)) {
    word from, to;
    if (function != 29 || gy != 1 || gz != 1 || by != 1 || bz != 1) return INVALID;
    if ((int)shared > dynamic_most) return 701;
    if (parameters) {
        from = *(word *)parameters[0], to = *(word *)parameters[1];
    } else if (extra) { /* 1: a pointer to a buffer with all arguments */
        word *buffer = 0;
        for (int i = 0; extra[i]; i += 2)
            if (extra[i] == (void *)1) buffer = extra[i + 1];
        if (!buffer) return INVALID;
        from = buffer[0], to = buffer[1];
    } else
        return INVALID;
    memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, 4 * gx * bx);
    now_ms += 0.5f;
    return OK;
}
CU(cuEventCreate, (word *event, unsigned flags)) { *event = (word)(uintptr_t)calloc(1, sizeof(float)); return OK; }
CU(cuEventRecord, (word event, word stream)) { *(float *)(uintptr_t)event = now_ms; return OK; }
CU(cuEventSynchronize, (word event)) { return OK; }
CU(cuEventDestroy, (word event)) { free((void *)(uintptr_t)event); return OK; }
CU(cuEventElapsedTime, (float *ms, word begin, word end)) {
    *ms = *(float *)(uintptr_t)end - *(float *)(uintptr_t)begin;
    return OK;
}
CU(cuGetErrorName, (int code, const char **text)) { *text = "CUDA_ERROR_STUB"; return OK; }
CU(cuGetErrorString, (int code, const char **text)) { *text = "the stub refuses"; return OK; }

static int refuse(void) { return UNKNOWN; }

/* cuda-bindings asks for functions by their names without versions */
int cuGetProcAddress_v2(const char *name, void **function, int version, word flags, int *status) {
    void *found = dlsym(RTLD_DEFAULT, name);
    *function = found ? found : (void *)refuse;
    if (status) *status = 0;
    return OK;
}
int cuGetProcAddress(const char *name, void **function, int version, word flags) {
    return cuGetProcAddress_v2(name, function, version, flags, 0);
}
