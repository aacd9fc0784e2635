"""Numbers at arXiv, and titles, of the papers that the rows name by author and year."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

HOSTS: Mapping[str, str] = MappingProxyType({
    "arXiv": "https://arxiv.org/abs/", "kexue": "https://kexue.fm/archives/",
})
"""Addresses of papers and essays, before their number: only links, which nothing loads by itself."""

PAPERS: Mapping[str, str] = MappingProxyType({
    "Ainslie et al. 2023": "2305.13245",
    "Ba et al. 2016": "1607.06450",
    "Bachlechner et al. 2020": "2003.04887",
    "Chen & Wei 2026": "2601.19895",
    "DeepNet: Wang et al. 2022": "2203.00555",
    "Derf: Chen et al. 2025": "2512.10938",
    "Devlin et al. 2018": "1810.04805",
    "Dey et al. 2025": "2505.01618",
    "Dong et al. 2021": "2103.03404",
    "Gemma Team 2024": "2408.00118",
    "He et al. 2015": "1512.03385",
    "He et al. 2015, backward form, eq. 14": "1502.01852",
    "He et al. 2015, eq. 10": "1502.01852",
    "He et al. 2020": "2012.11747",
    "He et al. 2024": "2405.19279",
    "Hendrycks & Gimpel 2016": "1606.08415",
    "Henry et al. 2020": "2010.04245",
    "Hu et al. 2024": "2404.06395",
    "Hägele et al. 2024": "2405.18392",
    "Jacot et al. 2018": "1806.07572",
    "Kazemnejad et al. 2023": "2305.19466",
    "Kim et al. 2025": "2502.02732",
    "Kimi K2, Bai et al. 2025": "2507.20534",
    "Kimi Team 2026": "2603.15031",
    "Kingma & Ba 2014": "1412.6980",
    "Kingma & Ba 2015": "1412.6980",
    "Klambauer et al. 2017": "1706.02515",
    "Liu et al. 2019": "1908.03265",
    "Liu et al. 2020": "2004.08249",
    "Llama Team 2024": "2407.21783",
    "Loshchilov & Hutter 2016": "1608.03983",
    "Loshchilov & Hutter 2017": "1711.05101",
    "Loshchilov et al. 2024": "2410.01131",
    "Magneto: Wang et al. 2022": "2210.06423",
    "Moonlight: Liu et al. 2025": "2502.16982",
    "Nakanishi 2025": "2501.19399",
    "OLMo 2 2025": "2501.00656",
    "OLMo Team 2024": "2501.00656",
    "Pascanu et al. 2012": "1211.5063",
    "Poole et al. 2016": "1606.05340",
    "Press & Wolf 2017": "1608.05859",
    "Press et al. 2022": "2108.12409",
    "Qiu et al. 2025": "2505.06708",
    "Raffel et al. 2020": "1910.10683",
    "Schoenholz et al. 2016": "1611.01232",
    "Shazeer 2020": "2002.05202",
    "Shleifer et al. 2021": "2110.09456",
    "Su et al. 2021": "2104.09864",
    "Touvron et al. 2021": "2103.17239",
    "Vaswani et al. 2017": "1706.03762",
    "Xie et al. 2025": "2512.24880",
    "Xiong et al. 2020": "2002.04745",
    "Yang et al. 2022": "2203.03466",
    "Zhai et al. 2023": "2303.06296",
    "Zhang & Sennrich 2019": "1910.07467",
    "Zhang et al. 2019": "1901.09321",
    "Zhou et al. 2024": "2410.17897",
    "Zhu et al. 2024": "2409.19606",
    "Zhu et al. 2025": "2503.10622",
})
"""Author and year, with as much around them as tells two papers apart, to the number."""
TITLES: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "1412.6980": ("Adam: A Method for Stochastic Optimization", "ICLR 2015"),
    "1502.01852": (
        "Delving Deep into Rectifiers: Surpassing Human-Level Performance on ImageNet Classification", "ICCV 2015"),
    "1512.03385": ("Deep Residual Learning for Image Recognition", "CVPR 2016"),
    "1606.05340": ("Exponential expressivity in deep neural networks through transient chaos", "NeurIPS 2016"),
    "1606.08415": ("Gaussian Error Linear Units (GELUs)",),
    "1607.06450": ("Layer Normalization",),
    "1608.03983": ("SGDR: Stochastic Gradient Descent with Warm Restarts", "ICLR 2017"),
    "1608.05859": ("Using the Output Embedding to Improve Language Models", "EACL 2017"),
    "1611.01232": ("Deep Information Propagation", "ICLR 2017"),
    "1706.02515": ("Self-Normalizing Neural Networks", "NeurIPS 2017"),
    "1706.03762": ("Attention Is All You Need", "NeurIPS 2017"),
    "1711.05101": ("Decoupled Weight Decay Regularization", "ICLR 2019"),
    "1806.07572": ("Neural Tangent Kernel: Convergence and Generalization in Neural Networks", "NeurIPS 2018"),
    "1810.04805": ("BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", "NAACL 2019"),
    "1901.09321": ("Fixup Initialization: Residual Learning Without Normalization", "ICLR 2019"),
    "1908.03265": ("On the Variance of the Adaptive Learning Rate and Beyond", "ICLR 2020"),
    "1910.07467": ("Root Mean Square Layer Normalization", "NeurIPS 2019"),
    "1910.10683": ("Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer", "JMLR 2020"),
    "2002.04745": ("On Layer Normalization in the Transformer Architecture", "ICML 2020"),
    "2002.05202": ("GLU Variants Improve Transformer",),
    "2003.04887": ("ReZero is All You Need: Fast Convergence at Large Depth",),
    "2004.08249": ("Understanding the Difficulty of Training Transformers", "EMNLP 2020"),
    "2010.04245": ("Query-Key Normalization for Transformers", "Findings of EMNLP 2020"),
    "2012.11747": ("RealFormer: Transformer Likes Residual Attention", "Findings of ACL 2021"),
    "2103.17239": ("Going deeper with Image Transformers", "ICCV 2021"),
    "2104.09864": ("RoFormer: Enhanced Transformer with Rotary Position Embedding",),
    "2108.12409": (
        "Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation", "ICLR 2022"),
    "2110.09456": ("NormFormer: Improved Transformer Pretraining with Extra Normalization",),
    "2203.00555": ("DeepNet: Scaling Transformers to 1,000 Layers",),
    "2203.03466": ("Tensor Programs V: Tuning Large Neural Networks via Zero-Shot Hyperparameter Transfer",),
    "2210.06423": ("Foundation Transformers",),
    "2302.13971": ("LLaMA: Open and Efficient Foundation Language Models",),
    "2404.06395": ("MiniCPM: Unveiling the Potential of Small Language Models with Scalable Training Strategies",),
    "2405.18392": ("Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations", "NeurIPS 2024"),
    "2407.21783": ("The Llama 3 Herd of Models",),
    "2408.00118": ("Gemma 2: Improving Open Language Models at a Practical Size",),
    "2409.19606": ("Hyper-Connections", "ICLR 2025"),
    "2410.01131": ("nGPT: Normalized Transformer with Representation Learning on the Hypersphere", "ICLR 2025"),
    "2501.00656": ("2 OLMo 2 Furious",),
    "2501.19399": ("Scalable-Softmax Is Superior for Attention",),
    "2502.16982": ("Muon is Scalable for LLM Training",),
    "2503.10622": ("Transformers without Normalization", "CVPR 2025"),
    "2505.01618": ("Don't be lazy: CompleteP enables compute-efficient deep transformers",),
    "2505.24333": (
        ("Two failure modes of deep transformers and how to avoid them: "
         "a unified theory of signal propagation at initialisation"),),
    "2505.06708": ("Gated Attention for Large Language Models: Non-linearity, Sparsity, and Attention-Sink-Free",),
    "2512.10938": ("Stronger Normalization-Free Transformers",),
    "2512.24880": ("mHC: Manifold-Constrained Hyper-Connections",),
    "8027": ("RealFormer: moving the residual onto the attention matrix",),
    "8620": ("Initialization, parametrization and normalization of Transformers",),
    "8994": ("Why residuals? A view from DeepNet",),
    "Bordelon et al. 2023": ("Depthwise Hyperparameter Transfer in Residual Networks: Dynamics and Scaling Limit",),
    "Chowdhery et al. 2022": ("PaLM: Scaling Language Modeling with Pathways",),
    "Clevert et al. 2015": ("Fast and Accurate Deep Network Learning by Exponential Linear Units (ELUs)", "ICLR 2016"),
    "De & Smith 2020": (
        "Batch Normalization Biases Residual Blocks Towards the Identity Function in Deep Networks", "NeurIPS 2020"),
    "Dehghani et al. 2018": ("Universal Transformers", "ICLR 2019"),
    "Ding et al. 2021": ("CogView: Mastering Text-to-Image Generation via Transformers", "NeurIPS 2021"),
    "Elfwing et al. 2017": (
        "Sigmoid-Weighted Linear Units for Neural Network Function Approximation in Reinforcement Learning",),
    "Gemma Team 2025": ("Gemma 3 Technical Report",),
    "Glorot & Bengio 2010": (
        "Understanding the difficulty of training deep feedforward neural networks", "AISTATS 2010"),
    "Hanin & Rolnick 2018": ("How to Start Training: The Effect of Initialization and Architecture", "NeurIPS 2018"),
    "Huang et al. 2020": ("Improving Transformer Optimization Through Better Initialization", "ICML 2020"),
    "Jordan et al. 2024": ("Muon: An optimizer for hidden layers in neural networks",),
    "Lan et al. 2019": ("ALBERT: A Lite BERT for Self-supervised Learning of Language Representations", "ICLR 2020"),
    "LeCun et al. 1998": ("Efficient BackProp", "Neural Networks: Tricks of the Trade"),
    "Li et al. 2025": ("Mix-LN: Unleashing the Power of Deeper Layers by Combining Pre-LN and Post-LN",),
    "Liu et al. 2022": ("Swin Transformer V2: Scaling Up Capacity and Resolution", "CVPR 2022"),
    "Miller 2023": ("Attention Is Off By One",),
    "Nair & Hinton 2010": ("Rectified Linear Units Improve Restricted Boltzmann Machines", "ICML 2010"),
    "OpenAI 2025": ("gpt-oss-120b & gpt-oss-20b Model Card",),
    "PaLM 2022": ("PaLM: Scaling Language Modeling with Pathways",),
    "Polyak 1964": ("Some methods of speeding up the convergence of iteration methods",),
    "Qwen Team 2025": ("Qwen3 Technical Report",),
    "Radford et al. 2019": ("Language Models are Unsupervised Multitask Learners",),
    "So et al. 2021": ("Primer: Searching for Efficient Transformers for Language Modeling", "NeurIPS 2021"),
    "Srivastava et al. 2015": ("Highway Networks",),
    "Sun et al. 2025": ("The Curse of Depth in Large Language Models",),
    "Taki 2017": ("Deep Residual Networks and Weight Initialization",),
    "Wang & Komatsuzaki 2021": ("GPT-J-6B: A 6 Billion Parameter Autoregressive Language Model",),
    "Williams 1997": ("Computing with Infinite Networks",),
    "Zhuo et al. 2025": ("HybridNorm: Towards Stable and Efficient Transformer Training via Hybrid Normalization",),
})
"""Title, and the venue where it is known for certain; by the number at arXiv or kexue, else by author and year. The
essays' titles are translations."""
_LONGEST_FIRST = sorted(PAPERS, key=len, reverse=True)


def cited(source: str) -> str:
    """A source with the numbers of its papers: 'Xiong et al. 2020, arXiv 2002.04745'."""
    return ";".join(map(_numbered, source.split(";")))


def _numbered(part: str) -> str:
    key = next((key for key in _LONGEST_FIRST if key in part), "")
    if not key or "arXiv" in part:
        return part
    before, _, after = part.partition(key)
    return f"{before}{key}, arXiv {PAPERS[key]}{after}"
