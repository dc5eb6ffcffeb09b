// How what both processors and GPUs run is marked for nvcc.
#pragma once

#if defined(__CUDACC__)
#define TRANSNORMER_DEVICE __device__
#define TRANSNORMER_BOTH __host__ __device__
#define TRANSNORMER_UNROLL _Pragma("unroll")
#else
#define TRANSNORMER_DEVICE
#define TRANSNORMER_BOTH
#define TRANSNORMER_UNROLL
#endif
