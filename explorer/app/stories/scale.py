"""Stories about width and about real models: μP, and the way from GPT-2 to Llama."""

from __future__ import annotations

from explorer.app.explore.question import Draw
from explorer.app.stories.story import Step, Story

MUP = Story("mup", "Same function, other training (μP)", "Why one learning rate does not fit every width.", (
    Step("?parametrization=ntk&pin=pre_ln", "NTK draws every weight with variance 1 and divides by √256 = 16 in the "
         "forward pass. It is the same function as the pinned one: dots lie on dots.", "second_moment"),
    Step("?parametrization=ntk&pin=pre_ln", "What differs is the gradient of a matrix: that of W_Q is 16 times "
         "smaller, since the forward pass divides by 16.", "gradient_by_matrix"),
    Step("?tab=05_parametrization", "Adam's first step moves each weight by the learning rate, here 0.01. Under NTK "
         "that is 1 % of a weight at any width. Under standard it is 16 % at width 256, and 32 % at 1024.",
         "first_step"),
    Step("?tab=05_parametrization", "So the best learning rate depends on the width: from 32 to 256 it falls to about "
         "1/16 under standard. Under μP it stays where it is, and can be found on a small model.", "best_rate"),
))

LLAMA = Story("gpt2_llama", "From GPT-2 to Llama", "What each change does to the signal of a new model.", (
    Step("?design=gpt2", "GPT-2 starts from small embeddings, of second moment 0.0008. Its last matrix of each branch "
         "is drawn √24 = 4.9 times smaller, and the stream grows 10-fold over 12 layers.", "second_moment"),
    Step("?design=gpt2&norm=rms&pin=gpt2", "Llama's norm divides by the RMS and does not subtract the mean. At the "
         "start that changes next to nothing: the second moment stays within 1 % of GPT-2's.", "second_moment"),
    Step("?design=gpt2&scale_rule=bert&norm=rms&pin=gpt2", "Llama draws all of its matrices alike, N(0, 0.02²); "
         "GPT-2's ended at a second moment of 0.0084.", "second_moment",
         Draw("How does the second moment grow now?", "second_moment", (-4.0, 2.0),
              "It grows to 0.23, which is 27 times GPT-2's.")),
    Step("?design=llama3&pin=gpt2", "Gated MLPs, rotary positions and shared keys complete Llama 3. Its tokens become "
         "more alike: a correlation of 0.87 after 12 layers, where GPT-2 has 0.29.", "token_correlation"),
))
